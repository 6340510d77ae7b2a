// `tpsim models`: what stands behind the prices of each family of models on each GPU of the catalogue: a real
// server that was met there (the table on which error bands rest), kernels that were measured on the GPU, or
// its datasheet alone (the calibration of a deployment, as every report has it).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/algorithm/string/case_conv.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/commands/commands.h"
#include "launch/deployment/resolve.h"
#include "launch/error_bands/residuals.h"
#include "launch/flags/server_args.h"
#include "launch/report/text_table.h"
#include "launch/simulation/parallel_loop.h"
#include "launch/simulation/reach.h"
#include "launch/simulation/run_report.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/catalogue/catalogue.h"
#include "rank/config/model_config.h"
#include "rank/config/pipeline_names.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

struct ModelsArgs {
  std::string family;
  std::string hardware;  // empty: all of the catalogue
  bool json = false;
};

// From the best on.
constexpr std::array<std::string_view, 4> kBehind = {"server", "kernels", "datasheet", "refused"};

struct Behind {
  std::string hardware;
  Met met = {};
  std::string_view what = "refused";         // of kBehind
  std::vector<std::string> unmeasured = {};  // classes of kernels that take much of a step
  std::string reason = {};                   // why it is refused
};

struct Family {
  std::string name;
  std::vector<std::string> models;  // of the catalogue
  std::vector<Behind> gpus;
};

// Models of the catalogue, and releases of them.
std::map<std::string, std::vector<std::string>> catalogue_families() {
  std::vector<std::string> models = rank::model_catalogue();
  const auto releases = nlohmann::json::parse(*rank::catalogue::find("releases", "releases"));
  for (const auto& [name, release] : releases.at("releases").items()) models.push_back(name);
  std::sort(models.begin(), models.end());
  std::map<std::string, std::vector<std::string>> families;
  for (const std::string& model : models)
    families[family_of(rank::load_model_config(model))].push_back(model);
  return families;
}

// The report's header of the first of the models that the GPU can serve, on eight, four, one or sixteen of
// them.
std::optional<proto::RunReport> header_of(const std::vector<std::string>& models, const std::string& hardware,
                                          std::string& refusal) {
  static const ServerArgs kAsked = read_run_flags({"--model-path", "llama-3.1-8b", "--hardware", "h200-sxm",
                                                   "--dataset-name", "random", "--num-prompts", "1"});
  for (const std::string& model : models) {
    std::string last;
    for (const std::uint32_t gpus : {8U, 4U, 1U, 16U}) {
      ServerArgs args = kAsked;
      args.model_path = model;
      args.hardware = hardware;
      args.tp_size = gpus;
      try {
        return resolve_deployments(args, /*compare=*/false).at(0).header;
      } catch (const UserError& error) {
        if (refusal.empty()) refusal = error.what();
        if (last == error.what()) break;  // it is not their number
        last = error.what();
      }
    }
  }
  return std::nullopt;
}

Behind judge(const std::string& family, const std::vector<std::string>& models, const std::string& hardware) {
  Behind out{.hardware = hardware,
             .met = met(catalogue_residuals(), rank::load_hardware(hardware).name(), family)};
  const std::optional<proto::RunReport> header = header_of(models, hardware, out.reason);
  if (header) {
    out.what = any_kernel_measured(*header) ? "kernels" : "datasheet";
    for (const proto::Calibration& row : header->calibration())
      if (row.status() == "uncalibrated" && is_heavy(row)) out.unmeasured.push_back(row.operator_class());
  }
  if (out.met.loads > 0) out.what = "server";
  return out;
}

// All families, or the one that `args` names, itself or by one of its models.
std::vector<Family> families_of(const ModelsArgs& args) {
  const auto families = catalogue_families();
  std::string wanted;
  if (!args.family.empty()) {
    std::vector<std::string> known;
    for (const auto& [family, models] : families) {
      known.push_back(family);
      known.insert(known.end(), models.begin(), models.end());
      const auto named = [&](const std::string& name) {
        return boost::to_lower_copy(name) == boost::to_lower_copy(args.family);
      };
      if (named(family) || std::any_of(models.begin(), models.end(), named)) wanted = family;
    }
    if (wanted.empty()) {
      const std::vector<std::string> guesses = nearest_three(args.family, known);
      throw_user_error("models {}: is no family, nor a model of the catalogue{}", args.family,
                       guesses.empty() ? "; `tpsim models` lists both"
                                       : fmt::format(", did you mean {}?", fmt::join(guesses, ", ")));
    }
  }
  std::vector<std::string> gpus = {args.hardware};
  if (args.hardware.empty()) gpus = rank::hardware_catalogue();
  std::vector<Family> out;
  for (const auto& [name, models] : families) {
    if (!wanted.empty() && name != wanted) continue;
    out.push_back({name, models, {}});
  }
  for (Family& family : out) family.gpus.resize(gpus.size());
  // A profile is read once where all that ask for it come together; GPUs beside each other, for all are
  // seconds.
  parallel_loop(
      gpus.size(), std::max(1U, std::thread::hardware_concurrency()),
      [&out, &gpus](std::size_t i, const std::atomic<bool>&) {
        for (Family& family : out) family.gpus[i] = judge(family.name, family.models, gpus[i]);
      },
      [](std::size_t) {});
  return out;
}

std::string met_text(const Met& met) {
  return fmt::format("{} load{} of {} server{}", met.loads, met.loads == 1 ? "" : "s", met.servers,
                     met.servers == 1 ? "" : "s");
}

// A line a family, its GPUs by what stands behind them.
void print_families(const std::vector<Family>& families) {
  for (const Family& family : families) {
    const std::size_t models = family.models.size();
    print(fmt::format("{} ({} {})\n", family.name, models, models == 1 ? "model" : "models"));
    for (const std::string_view what : kBehind) {
      std::vector<std::string> gpus;
      for (const Behind& gpu : family.gpus)
        if (gpu.what == what) gpus.push_back(gpu.hardware);
      if (!gpus.empty()) print(fmt::format("  {:<10} {}\n", what, fmt::join(gpus, ", ")));
    }
  }
  print(
      "\nserver: a real server of the family was met on the GPU, ours or a published benchmark; kernels: "
      "only "
      "kernels\nwere measured on it; datasheet: nothing was. `tpsim models FAMILY` has its models, and what "
      "was "
      "not measured.\n");
  print(fmt::format("\nPipelines of images and videos: {}.\n", fmt::join(rank::pipeline_catalogue(), ", ")));
}

void print_family(const Family& family) {
  print(fmt::format("{}: {}\n\n", family.name, fmt::join(family.models, ", ")));
  TextTable table;
  table.left_columns = 3;
  table.rows.push_back({"GPU", "behind it", ""});
  for (const Behind& gpu : family.gpus) {
    std::string more = gpu.met.loads > 0 ? met_text(gpu.met) : "";
    if (!gpu.unmeasured.empty())
      more += fmt::format("{}not measured: {}", more.empty() ? "" : "; ", fmt::join(gpu.unmeasured, ", "));
    table.rows.push_back({gpu.hardware, std::string(gpu.what), gpu.what == "refused" ? gpu.reason : more});
  }
  print(to_text(table, shows_colours(STDOUT_FILENO)));
}

int print_json(const std::vector<Family>& families) {
  nlohmann::ordered_json json = {{"families", nlohmann::ordered_json::array()}};
  for (const Family& family : families) {
    nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
    for (const Behind& gpu : family.gpus) {
      nlohmann::ordered_json entry = {{"hardware", gpu.hardware},
                                      {"behind", gpu.what},
                                      {"loads", gpu.met.loads},
                                      {"servers", gpu.met.servers},
                                      {"unmeasured", gpu.unmeasured}};
      if (gpu.what == "refused") entry["reason"] = gpu.reason;
      gpus.push_back(std::move(entry));
    }
    json["families"].push_back(
        {{"family", family.name}, {"models", family.models}, {"gpus", std::move(gpus)}});
  }
  print(json.dump(2) + "\n");
  return kDone;
}

int models(const ModelsArgs& args) {
  const std::vector<Family> families = families_of(args);
  if (args.json) return print_json(families);
  if (args.family.empty()) {
    print_families(families);
  } else {
    print_family(families.at(0));
  }
  return kDone;
}

}  // namespace

void add_models_command(CLI::App& command, rank::MpiSession&, Action& action) {
  add_flag_command<ModelsArgs>(
      command, action,
      [](FlagSet& flags, ModelsArgs& args) {
        flags.add_word("FAMILY", "only this one, named by itself or by a model, with its models", args.family,
                       /*required=*/false);
        flags.add_value("--hardware", "GPU", "only this device",
                        [&args](std::string_view flag, const std::string& value) {
                          text(args.hardware)(flag, value);
                          rank::load_hardware(value);
                        });
        flags.add_switch("--json", "prints JSON", args.json);
      },
      [](ModelsArgs& args, FlagSet&) { return models(args); });
}

}  // namespace tpsim::launch
