// What attention backends of diffusion pipelines there are, where they run, and which each component gets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/terminal.h"
#include "launch/diffusion/attention_choice.h"
#include "launch/diffusion/diffusion_commands.h"
#include "launch/diffusion/parallelism.h"
#include "launch/diffusion/pipeline_report.h"
#include "launch/diffusion/resolve.h"
#include "launch/report/text_table.h"
#include "proto/base/error.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

struct BackendsArgs : PipelineArgs {
  bool pipeline = false, json = false;
};

// The documentation's two tables in one.
TextTable matrix() {
  TextTable table{.rows = {{"Backend", "Aliases", "Needs"}}, .left_columns = 10};
  for (const attention::DiffusionPlatform platform : attention::kDiffusionPlatforms)
    table.rows[0].emplace_back(attention::to_string(platform));
  table.rows[0].emplace_back("Notes");
  for (const attention::DiffusionBackend* backend : attention::diffusion_backends()) {
    std::vector<std::string> row = {std::string(backend->name),
                                    fmt::format("{}", fmt::join(backend->aliases, ", ")),
                                    std::string(backend->package)};
    for (const attention::DiffusionPlatform platform : attention::kDiffusionPlatforms)
      row.emplace_back(backend->platforms.contains(platform) ? "yes" : "no");
    row.emplace_back(backend->note);
    table.rows.push_back(std::move(row));
  }
  return table;
}

TextTable parameters() {
  TextTable table{.rows = {{"Backend", "Key", "Default", "Meaning"}}, .left_columns = 4};
  for (const attention::DiffusionBackend* backend : attention::diffusion_backends()) {
    for (const attention::DiffusionParameter& p : backend->parameters)
      table.rows.push_back({std::string(backend->name), std::string(p.name),
                            p.required ? "required" : std::string(p.default_value), std::string(p.meaning)});
  }
  return table;
}

Json rows_json(const TextTable& table) {
  Json rows = Json::array();
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    Json row;
    for (std::size_t k = 0; k < table.rows[0].size(); ++k) row[table.rows[0][k]] = table.rows[i][k];
    rows.push_back(std::move(row));
  }
  return rows;
}

// Which backend each component of the pipeline gets, and why no other of the list.
TextTable choices(const BackendsArgs& args, const Pipeline& pipeline) {
  const Parallelism parallel =
      resolve_parallelism(args.parallel, deployment_rule(pipeline.config), pipeline.config.defaults.guided,
                          args.performance_mode == "manual");
  TextTable table{.rows = {{"Component", "Role", "Backend", "Reason"}}, .left_columns = 4};
  for (const AttentionRow& row :
       choose_attention(args.attention, pipeline.config, pipeline.hardware, parallel.ring).rows)
    table.rows.push_back({row.component, row.role, row.backend, row.reason});
  return table;
}

// Each backend asked of the transformer by itself.
TextTable candidates(const BackendsArgs& args, const Pipeline& pipeline) {
  TextTable table{.rows = {{"--attention-backend", "The transformer gets"}}, .left_columns = 2};
  for (const attention::DiffusionBackend* backend : attention::diffusion_backends()) {
    AttentionAsked asked{.backend = std::string(backend->name),
                         .components = {},
                         .config = args.attention.config,
                         .sharing = {},
                         .installed = args.attention.installed};
    std::string answer;
    try {
      for (const AttentionRow& row : choose_attention(asked, pipeline.config, pipeline.hardware, 1).rows) {
        if (row.component != "transformer") continue;
        answer += fmt::format("{}{} {}{}", answer.empty() ? "" : "; ", row.role, row.backend,
                              row.backend == backend->name ? "" : ": " + row.reason);
      }
    } catch (const UserError& error) {
      answer = error.what();
    }
    table.rows.push_back({std::string(backend->name), answer});
  }
  return table;
}

int backends(const BackendsArgs& args) {
  Json json = {{"backends", rows_json(matrix())}, {"parameters", rows_json(parameters())}};
  std::string out = "Attention backends of diffusion pipelines\n" + to_text(matrix(), false) +
                    "\nKeys of --attention-backend-config\n" + to_text(parameters(), false);
  out += fmt::format("\nKnown to SGLang and not simulated: {}\n",
                     fmt::join(attention::unsimulated_diffusion_backends(), ", "));
  if (args.model_path.empty() && !args.hardware.empty())
    throw_user_error("--model-path: is needed beside --hardware: what is chosen depends on the components");
  if (!args.model_path.empty()) {
    std::vector<std::string> gpus = {args.hardware};
    if (args.hardware.empty()) gpus = rank::hardware_catalogue();
    json["chosen"] = Json::object();
    for (const std::string& gpu : gpus) {
      BackendsArgs one = args;
      one.hardware = gpu;
      const Pipeline pipeline = load_pipeline_of(one);
      const TextTable chosen = choices(one, pipeline);
      json["chosen"][gpu] = rows_json(chosen);
      out += fmt::format("\n{} on {}\n{}", args.model_path, gpu, to_text(chosen, false));
      if (!args.hardware.empty()) out += "\n" + to_text(candidates(one, pipeline), false);
    }
  }
  print(args.json ? json.dump(2) + "\n" : out);
  return kDone;
}

}  // namespace

void add_pipeline_backends(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<BackendsArgs>(
      command, action,
      [](FlagSet& flags, BackendsArgs& args) {
        declare_pipeline(flags, args);
        flags.group("Output");
        flags.add_switch("--pipeline", "of diffusion pipelines, not of language models", args.pipeline);
        flags.add_switch("--json", "prints JSON", args.json);
      },
      [&session](BackendsArgs& args, FlagSet&) { return session.process() == 0 ? backends(args) : kDone; });
}

}  // namespace tpsim::launch
