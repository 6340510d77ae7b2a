// `tpsim generate`: prompts as token ids through the numeric executor, generated ids out.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_set.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/deployment/images.h"
#include "launch/deployment/resolve.h"
#include "launch/flags/server_args.h"
#include "launch/numeric/numeric_commands.h"
#include "launch/simulation/prompts.h"
#include "launch/simulation/run_monitor.h"
#include "launch/simulation/stage.h"
#include "proto/base/error.h"
#include "proto/base/output_file.h"
#include "proto/base/text.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/engine.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {
namespace {

struct GenerateArgs {
  ServerArgs server;
  std::optional<std::vector<std::uint32_t>> prompt_ids;
  std::optional<std::vector<scheduler::ImageInput>> images;
  std::string prompts;  // file
  std::string output;   // file
  std::uint32_t max_new_tokens = 128;
  scheduler::SamplingParams sampling{.ignore_eos = false};
  bool return_logits = false;
};

void declare_flags(FlagSet& flags, GenerateArgs& args) {
  flags.group("Generation");
  flags.add_value("--prompt-ids", "1,2,3", "token ids of one prompt",
                  [&args](std::string_view flag, const std::string& value) {
                    args.prompt_ids = parse_prompt_ids(flag, value);
                  });
  flags.add_value(
      "--image", "ID:WxH@P",
      "images of that prompt, as 7:640x480@2,8:64x64@5: pixels made from the number ID, width and "
      "height, and how many of the prompt's tokens come first (default 0)",
      [&args](std::string_view flag, const std::string& value) { args.images = parse_images(flag, value); });
  flags.add_value("--prompts", "FILE",
                  "JSONL of prompts, {\"prompt_ids\": [1, 2, 3]} a line; with images also \"images\": [[640, "
                  "480]], \"image_ids\": [7], \"image_positions\": [2]",
                  text(args.prompts));
  flags.add_value(
      "--output", "FILE",
      "JSONL for each prompt in order: {\"token_ids\": [...], \"prompt_logits\": [...]} "
      "(default: ids on standard output), and with --enable-hierarchical-cache \"cached_host\", "
      "prompt tokens loaded from host memory; a prompt that a signal cut off has \"stopped_early\"",
      text(args.output));
  flags.add_value("--max-new-tokens", "N", "tokens to generate (default 128)", count(args.max_new_tokens, 1));
  flags.add_value("--temperature", "T", "of sampling, 0 takes the likeliest token (default 0)",
                  real(args.sampling.temperature, 0, true, 100, true));
  flags.add_value("--top-k", "K", "samples among the K likeliest tokens, -1 for all (default -1)",
                  [&args](std::string_view flag, const std::string& value) {
                    args.sampling.top_k =
                        value == "-1" ? 0 : static_cast<std::uint32_t>(parse_count(flag, value, 1, 1U << 30));
                  });
  flags.add_value("--top-p", "P", "samples among the likeliest tokens of this total probability (default 1)",
                  real(args.sampling.top_p, 0, false, 1, true));
  flags.add_value("--sampling-seed", "N", "of every request's sampling (default 0)",
                  count(args.sampling.seed, 0, std::numeric_limits<std::int64_t>::max()));
  flags.add_switch("--ignore-eos", "goes on after the end-of-sequence token", args.sampling.ignore_eos);
  flags.add_switch("--return-logits", "adds the fp32 logits at the last prompt position to --output",
                   args.return_logits);
  declare_deployment_flags(flags, args.server);
}

std::vector<Prompt> load_prompts(const GenerateArgs& args) {
  if (args.prompt_ids.has_value() == !args.prompts.empty())
    throw_user_error("--prompt-ids: give token ids, or a file of prompts by --prompts, and not both");
  if (args.return_logits && args.output.empty())
    throw_user_error("--return-logits: needs --output, the file that receives them");
  if (args.images && !args.prompt_ids)
    throw_user_error(
        "--image: belongs to the prompt of --prompt-ids; in a file each prompt names its own \"images\"");
  if (!args.prompts.empty()) return read_prompts(args.prompts);
  return {{*args.prompt_ids, "--prompt-ids", args.images.value_or(std::vector<scheduler::ImageInput>{})}};
}

scheduler::Workload make_workload(const GenerateArgs& args, const std::vector<Prompt>& prompts,
                                  const rank::ModelConfig& model) {
  scheduler::Workload workload;
  workload.name = args.prompts.empty() ? "--prompt-ids" : args.prompts;
  workload.format = "prompts";
  for (const Prompt& prompt : prompts)
    workload.requests.push_back(request_of(prompt, args.max_new_tokens, args.sampling));
  place_workload_images(args.server, model, /*host=*/{}, workload);
  return workload;
}

// What was asked for must fit; a serving simulator may clip or refuse requests, a generator may not.
void check_lengths(const GenerateArgs& args, const std::vector<Prompt>& prompts,
                   const scheduler::Workload& workload, const Deployment& deployment) {
  const std::uint64_t context = deployment.scheduler.context_length;
  const std::uint64_t pool = deployment.scheduler.max_total_num_tokens;
  // SGLang's, see scheduler/scheduler.cc: for what is longer, it would clip the output.
  constexpr std::uint64_t kHeadroom = 7;
  const std::uint64_t pages = 2 * std::uint64_t{deployment.scheduler.page_size};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::uint64_t tokens = workload.requests[i].prompt.size();  // with images
    const std::uint64_t length = tokens + args.max_new_tokens + kHeadroom;
    if (length > context || length + pages > pool) {
      throw_user_error("{}: {} prompt tokens and {} new ones do not fit the {} of {} tokens",
                       prompts[i].where, tokens, args.max_new_tokens, context < pool ? "context" : "KV pool",
                       std::min(context, pool));
    }
  }
}

std::string to_jsonl(const std::vector<Output>& outputs, bool logits, bool host_tier) {
  std::string text;
  for (const Output& output : outputs) {
    text += fmt::format("{{\"token_ids\": [{}]", fmt::join(output.token_ids, ", "));
    // Nine digits give every fp32 back.
    if (logits) text += fmt::format(", \"prompt_logits\": [{:.9g}]", fmt::join(output.prompt_logits, ", "));
    if (host_tier) text += fmt::format(", \"cached_host\": {}", output.cached_host);
    text += output.completed ? "}\n" : ", \"stopped_early\": true}\n";
  }
  return text;
}

void check_completed(const std::vector<Prompt>& prompts, const std::vector<Output>& outputs) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (!outputs[i].completed)
      throw_user_error("{}: was refused by the scheduler, see --log-level debug", prompts[i].where);
  }
}

// `file`: of --output, if that was given.
void write_outputs(const GenerateArgs& args, const std::vector<Output>& outputs,
                   std::optional<OutputFile>& file) {
  if (file) {
    file->write(to_jsonl(outputs, args.return_logits, args.server.hicache.enable));
    file->commit();
    return;
  }
  for (const Output& output : outputs) print(fmt::format("{}\n", fmt::join(output.token_ids, ",")));
}

int generate_on(const Stage& stage, const GenerateArgs& args, const Deployment& deployment) {
  const std::vector<Prompt> prompts = load_prompts(args);
  check_prompts(prompts, deployment.model.vocab_size);
  const scheduler::Workload workload = make_workload(args, prompts, deployment.model);
  check_lengths(args, prompts, workload, deployment);
  std::optional<OutputFile> file;
  if (!args.output.empty()) file.emplace(args.output, "--output " + args.output);

  const std::unique_ptr<rank::DeploymentExecutor> executor =
      stage.make_executor(deployment, args.return_logits);
  LossTolerantExecutor tolerant(*executor);
  ProgressBar progress(ProgressBar::mode_for_stderr(!args.server.no_progress),
                       deployment.attention.backends.name());
  Outputs outputs(prompts.size());
  RunMonitor monitor(outputs, progress);
  const proto::RunReport report =
      scheduler::run_workload(deployment.scheduler, {}, scheduler::WorkloadView(workload), tolerant, monitor);
  if (!report.stopped_early()) {
    executor->finish();
    check_completed(prompts, outputs.all());
  }
  write_outputs(args, outputs.all(), file);
  if (tolerant.loss()) throw rank::RankLost(*tolerant.loss());
  if (!report.stopped_early()) return kDone;
  spdlog::error("interrupted; {} of {} prompts were finished", report.completed(), prompts.size());
  return kStoppedEarly;
}

int generate(const GenerateArgs& args, rank::MpiSession& session) {
  set_up_logging(args.server, session.process() == 0);
  const std::vector<Deployment> deployments = resolve_deployments(args.server, /*compare=*/false);
  return run_on_ranks(args.server, deployments, session,
                      [&](const Stage& stage) { return generate_on(stage, args, deployments.front()); });
}

}  // namespace

void add_generate_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<GenerateArgs>(
      command, action,
      [](FlagSet& flags, GenerateArgs& args) {
        args.server.executor = "numeric";
        declare_flags(flags, args);
      },
      [&session](GenerateArgs& args, FlagSet&) {
        if (!args.server.numeric())
          throw_user_error("--executor modeled: prices batches and generates nothing; leave it out");
        check_deployment_args(args.server);
        return generate(args, session);
      });
}

}  // namespace tpsim::launch
