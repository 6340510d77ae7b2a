#include "launch/flags/server_args.h"

#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <utility>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/shell_line.h"
#include "proto/base/error.h"

namespace tpsim::launch {

namespace {

constexpr std::string_view kSweepableFlags[] = {
    "--hardware",
    "--tp-size",
    "--pp-size",
    "--pp-max-micro-batch-size",
    "--pp-async-batch-depth",
    "--dp-size",
    "--attn-dp-size",
    "--enable-dp-attention",
    "--enable-dp-lm-head",
    "--load-balance-method",
    "--ep-size",
    "--moe-dense-tp-size",
    "--moe-a2a-backend",
    "--deepep-mode",
    "--expert-distribution",
    "--enable-eplb",
    "--ep-num-redundant-experts",
    "--router-policy",
    "--router-cache-threshold",
    "--router-balance-abs-threshold",
    "--router-balance-rel-threshold",
    "--pd-disaggregation",
    "--prefill",
    "--decode",
    "--prefill-policy",
    "--decode-policy",
    "--num-reserved-decode-tokens",
    "--kv-link",
    "--kv-link-bandwidth",
    "--dtype",
    "--context-length",
    "--disable-shared-experts-fusion",
    "--nsa-prefill-backend",
    "--nsa-decode-backend",
    "--page-size",
    "--kv-cache-dtype",
    "--quantization",
    "--moe-runner-backend",
    "--fp8-gemm-backend",
    "--fp4-gemm-backend",
    "--enable-flashinfer-allreduce-fusion",
    "--flashinfer-allreduce-fusion-backend",
    "--enforce-disable-flashinfer-allreduce-fusion",
    "--mem-fraction-static",
    "--max-total-tokens",
    "--max-running-requests",
    "--swa-full-tokens-ratio",
    "--disable-hybrid-swa-memory",
    "--mamba-full-memory-ratio",
    "--max-mamba-cache-size",
    "--mamba-ssm-dtype",
    "--mamba-radix-cache-strategy",
    "--mamba-track-interval",
    "--linear-attn-backend",
    "--linear-attn-decode-backend",
    "--linear-attn-prefill-backend",
    "--enable-hierarchical-cache",
    "--hicache-ratio",
    "--hicache-write-policy",
    "--hicache-io-backend",
    "--hicache-mem-layout",
    "--hicache-storage-prefetch-policy",
    "--max-prefill-tokens",
    "--chunked-prefill-size",
    "--enable-mixed-chunk",
    "--scheduler-recv-interval",
    "--kernel-launch-us",
    "--launch-queue",
    "--tokenizer-worker-num",
    "--schedule-policy",
    "--sglang-version",
    "--schedule-conservativeness",
    "--retraction-policy",
    "--disable-radix-cache",
    "--disable-chunked-prefix-cache",
    "--flashinfer-mla-disable-ragged",
    "--radix-eviction-policy",
    "--disable-overlap-schedule",
    "--disable-cuda-graph",
    "--disable-decode-cuda-graph",
    "--disable-prefill-cuda-graph",
    "--cuda-graph-max-bs",
    "--cuda-graph-max-bs-prefill",
    "--speculative-algorithm",
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
    "--speculative-ngram-max-bfs-breadth",
    "--speculative-attention-mode",
    "--speculative-draft-attention-backend",
    "--mm-attention-backend",
    "--mm-enable-dp-encoder",
    "--vlm-cache-size-mb",
    "--request-rate",
    "--max-concurrency",
    "--time-scale",
    "--stream-interval",
};

// The flags of a server, in the order of the help; the first wrong one in this order is the one that the user
// hears about.
void declare_server(FlagSet& flags, ServerArgs& args, bool compare) {
  flags.accept_flags_of(SglangProgram::kServer, args.ignored_flags);
  flags.group("Deployment");
  declare_model(flags, args);
  declare_parallel(flags, args.parallel);
  declare_router(flags, args.router);
  declare_disaggregation(flags, args.disaggregation);
  declare_model_limits(flags, args);
  declare_attention(flags, args, compare);
  declare_quantization(flags, args);
  declare_kernels(flags, args);
  declare_speculation(flags, args.speculation);
  flags.group("Memory and batches");
  declare_memory(flags, args);
  declare_hicache(flags, args.hicache);
  declare_states(flags, args);
  declare_batches(flags, args);
  declare_host(flags, args);
  declare_schedule(flags, args);
  declare_mla(flags, args);
  declare_eviction(flags, args);
  declare_graphs(flags, args);
  declare_image_server(flags, args.images);
}

}  // namespace

void declare_server_flags(FlagSet& flags, ServerArgs& args, bool compare) {
  declare_server(flags, args, compare);
  declare_load(flags, args, [&] { declare_image_dataset(flags, args.images); });
  declare_output(flags, args);
  flags.group("Deployment");
  declare_fleet(flags, args.router);
  declare_elastic(flags, args.elastic);
  flags.mark_lists(sweepable_flags(), /*taken=*/compare);
  flags.add_value("--jobs", "N",
                  compare ? "settings of a sweep served at once by each process, or threads that run the "
                            "replicas of --dp-size (default: its share of the cores)"
                          : "threads that run the replicas of --dp-size or --fleet, with the same report for "
                            "any number (default: the cores of this process)",
                  count(args.jobs, 1, 1024));
}

std::vector<std::string> load_flags() {
  CLI::App app;
  FlagSet flags(app);
  ServerArgs unused;
  declare_load(flags, unused, [&] { declare_image_dataset(flags, unused.images); });
  declare_output(flags, unused);
  declare_elastic(flags, unused.elastic);  // of the fleet, not of its servers
  return flags.names();
}

void declare_deployment_flags(FlagSet& flags, ServerArgs& args) {
  declare_server(flags, args, /*compare=*/false);
  flags.mark_lists(sweepable_flags(), /*taken=*/false);
  flags.group("Output");
  flags.add_value("--random-seed,--seed", "N", "of everything random (default 1)",
                  count(args.random_seed, 0, std::numeric_limits<std::uint32_t>::max()));
  declare_logging(flags, args, /*prints_table=*/false);
  declare_invariants(flags, args);
}

void declare_backends_flags(FlagSet& flags, ServerArgs& args) {
  flags.add_value("--hardware", "GPU", "only this device of the catalogue", text(args.hardware));
  flags.add_value("--model-path,--model", "MODEL", "for this model: which can run, and what forbids the rest",
                  text(args.model_path));
  declare_cache(flags, args);
}

void check_deployment_args(const ServerArgs& args) {
  check_model(args);
  if (args.parallel.load_balance == scheduler::LoadBalanceMethod::kFollowBootstrapRoom &&
      !args.disaggregation.pd_disaggregation)
    throw_user_error(
        "--load-balance-method follow_bootstrap_room: is of servers that prefill or decode alone; use "
        "round_robin");
  if (args.numeric()) {
    check_numeric_load(args);
  } else {
    check_modeled_cache(args);
  }
  check_batches(args);
  check_disaggregation(args.disaggregation);
}

void check_server_args(const ServerArgs& args, bool compare) {
  check_deployment_args(args);
  if (compare && args.attention_backends.empty() && !args.all_attention_backends && !args.swept)
    throw_user_error("--attention-backends: is required, for example fa3,flashinfer,flashinfer+fa3");
  check_output(args, compare, args.swept);
  if (args.jobs && !args.swept && args.parallel.replicas() == 1 && args.router.fleet.empty())
    throw_user_error(
        "--jobs {}: shares out the settings of a sweep or the replicas of a fleet, give a flag a list such "
        "as --tp 4,8, or --dp-size",
        *args.jobs);
  check_elastic_args(args.elastic);
  check_autoscale(args.elastic, args.elastic.autoscale.most > 0, "--autoscale", args.goodput.any());
  check_load(args);
  check_images(args.images, args);
  check_service_levels(args, args.numeric());
  check_checkpoints(args, compare, args.numeric());
}

ServerArgs read_run_flags(std::vector<std::string> words, bool compare) {
  ServerArgs args;
  read_words(compare ? "compare" : "run", std::move(words),
             [&](FlagSet& flags) { declare_server_flags(flags, args, compare); });
  check_server_args(args, compare);
  return args;
}

ServerArgs decode_server_args(const ServerArgs& args) {
  ServerArgs decode = args;
  try {
    read_words("run", shell_words(args.disaggregation.decode_args),
               [&decode](FlagSet& flags) { declare_server(flags, decode, /*compare=*/false); });
    check_deployment_args(decode);
  } catch (const UserError& error) {
    throw_user_error("--decode-args: {}", error.what());
  }
  return decode;
}

void set_up_logging(const ServerArgs& args, bool speaks) { set_up_logging(args, args.ignored_flags, speaks); }

void set_up_logging(const OutputArgs& args, const std::vector<std::string>& ignored, bool speaks) {
  const auto logger =
      std::make_shared<spdlog::logger>("tpsim", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("tpsim: %l: %v");
  logger->set_level(speaks ? spdlog::level::from_str(args.log_level) : spdlog::level::off);
  spdlog::set_default_logger(logger);
  if (!ignored.empty()) {
    spdlog::warn("{}", fmt::format("{}: {} nothing to a simulation", fmt::join(ignored, ", "),
                                   ignored.size() == 1 ? "means" : "mean"));
  }
}

std::span<const std::string_view> sweepable_flags() { return kSweepableFlags; }

}  // namespace tpsim::launch
