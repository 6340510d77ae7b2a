#include "launch/simulation/workload_args.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "launch/deployment/host.h"
#include "launch/tokenizer/open.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "scheduler/workload/benchmark_datasets.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {

namespace {

constexpr std::uint64_t kDatasetPrompts = 1000;  // the benchmark's default

// tpsim's own traces name when requests reach the scheduler: comparisons with SGLang's are made of them.
scheduler::FrontEndConfig front_end(const ServerArgs& args, const Deployment& deployment,
                                    const scheduler::WorkloadOutline& workload) {
  const std::string kind =
      args.front_end.value_or(args.numeric() || workload.format == "tpsim" ? "none" : "ids");
  if (args.tokenize_us && kind != "text")
    throw_user_error("--tokenize-us {}: prompts are tokenized with --front-end text, and here it is {}",
                     format_real(*args.tokenize_us), kind);
  if (kind == "none") {
    if (args.client_seconds)
      throw_user_error("--client-seconds {}: is part of --front-end ids, text or kit, and this load has none",
                       format_real(*args.client_seconds));
    return {};
  }
  const proto::HostProfile& host = deployment.host;
  scheduler::FrontEndConfig config = front_end_of(host, deployment.hardware.kernel_launch_seconds(), kind,
                                                  args.tokenizer_worker_num, args.sglang_release.rules);
  config.stream_interval = args.stream_interval;
  if (args.tokenize_us) config.token_seconds = *args.tokenize_us / 1e6;
  if (kind == "kit" && args.served_before) {
    config.connections = 1;
    for (const rank::ServedLoad& load : parse_served_before("--served-before", *args.served_before))
      config.connections = std::max(config.connections, load.max_requests);
  }
  if (args.client_seconds)
    config = scheduler::with_client(config, client_share_of(host), *args.client_seconds);
  return config;
}

// By the tokenizer of the model's folder, which is opened when the first text comes; null where it has none
// that this build reads.
std::function<std::uint64_t(std::string_view)> count_tokens(const ServerArgs& args) {
  struct Opened {
    std::once_flag once;
    std::shared_ptr<const Tokenizer> tokenizer;
  };
  const std::filesystem::path folder = args.model_path;
  std::error_code ignored;
  for (const TokenizerKind& kind : tokenizer_kinds()) {
    if (!std::filesystem::exists(folder / kind.file, ignored) || !kind.missing().empty()) continue;
    return [folder, opened = std::make_shared<Opened>()](std::string_view text) -> std::uint64_t {
      std::call_once(opened->once, [&] { opened->tokenizer = open_tokenizer(folder, 0).tokenizer; });
      return opened->tokenizer->encode(text, /*add_special=*/true).size();
    };
  }
  return {};
}

// A trace that comes once, however often the load is wanted.
class StandardInput : public scheduler::StreamedWorkload {
 public:
  explicit StandardInput(const scheduler::ReadOptions& options) : StandardInput(read_once(options)) {}

 private:
  explicit StandardInput(const std::shared_ptr<const scheduler::StreamedWorkload>& trace)
      : scheduler::StreamedWorkload(trace->outline(), [trace] { return trace->read(); }) {}
  static const std::shared_ptr<const scheduler::StreamedWorkload>& read_once(
      const scheduler::ReadOptions& options) {
    static const std::shared_ptr<const scheduler::StreamedWorkload> kTrace =
        scheduler::open_trace("/dev/stdin", options);
    return kTrace;
  }
};

std::unique_ptr<scheduler::StreamedWorkload> load_trace(const ServerArgs& args) {
  const scheduler::ReadOptions options = {
      .format = args.trace_format,
      .num_prompts = static_cast<std::size_t>(args.num_prompts.value_or(0)),
      .sort = false,
      .count_tokens = count_tokens(args)};
  std::unique_ptr<scheduler::StreamedWorkload> workload = args.trace == "-"
                                                              ? std::make_unique<StandardInput>(options)
                                                              : scheduler::open_trace(args.trace, options);
  const scheduler::WorkloadOutline& outline = workload->outline();
  if (args.session_mode == scheduler::SessionMode::kClosed && !outline.conversations) {
    throw_user_error(
        "--session-mode closed: {} names no conversations; leave it out, or give a trace with session_id",
        outline.name);
  }
  if (args.use_trace_timestamps && outline.format == "sharegpt")
    throw_user_error("--use-trace-timestamps: {} has no times, use --request-rate", outline.name);
  return workload;
}

scheduler::RandomOptions random_options(const ServerArgs& args) {
  scheduler::RandomOptions options;
  options.num_prompts = args.num_prompts.value_or(kDatasetPrompts);
  options.random_input_len = args.random_input_len.value_or(options.random_input_len);
  options.random_output_len = args.random_output_len.value_or(options.random_output_len);
  options.random_range_ratio = args.random_range_ratio.value_or(options.random_range_ratio);
  options.seed = args.load_seed();
  return options;
}

// Tokens of each prompt that the earlier runs had: prompt i of all of them is one text, repeated to its
// length (sample_random_requests of SGLang's benchmark).
std::vector<std::uint32_t> prompts_before(const ServerArgs& args) {
  std::vector<std::uint32_t> tokens;
  for (const scheduler::RandomOptions& run : args.runs_before) {
    const std::vector<std::uint32_t> lengths =
        scheduler::NumpyRandom(args.load_seed())
            .lengths(run.random_input_len, run.random_range_ratio, run.num_prompts);
    if (tokens.size() < lengths.size()) tokens.resize(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) tokens[i] = std::max(tokens[i], lengths[i]);
  }
  return tokens;
}

std::unique_ptr<scheduler::StreamedWorkload> make_images(const ServerArgs& args) {
  scheduler::ImageOptions options;
  options.text = random_options(args);
  options.image_count = args.images.image_count.value_or(options.image_count);
  options.random_image_count = args.images.random_image_count;
  options.blank = args.images.image_content == "blank";
  if (args.images.image_resolution)
    options.resolution = scheduler::parse_image_resolution(*args.images.image_resolution);
  return std::make_unique<scheduler::ImageWorkload>(options);
}

}  // namespace

std::unique_ptr<scheduler::StreamedWorkload> load_workload(const ServerArgs& args) {
  const std::string& dataset = args.dataset_name;
  if (dataset.empty()) return load_trace(args);
  if (dataset == "generated-shared-prefix") {
    scheduler::SharedPrefixOptions options = args.gsp;
    options.seed = args.load_seed();
    return std::make_unique<scheduler::SharedPrefixWorkload>(options);
  }
  const std::filesystem::path file = args.dataset_path;
  const std::uint64_t prompts = args.num_prompts.value_or(kDatasetPrompts);
  if (dataset == "mooncake")
    return scheduler::open_trace(file, {.format = dataset, .num_prompts = prompts, .sort = true});
  if (dataset == "sharegpt")
    return std::make_unique<scheduler::WorkloadInMemory>(
        scheduler::read_trace(file, {.format = dataset,
                                     .num_prompts = static_cast<std::size_t>(prompts),
                                     .draw = args.load_seed(),
                                     .count_tokens = count_tokens(args)}));
  if (dataset == "image") return make_images(args);
  return std::make_unique<scheduler::RandomWorkload>(random_options(args));
}

scheduler::LoadConfig load_config(const ServerArgs& args, const Deployment& deployment,
                                  const scheduler::WorkloadOutline& workload) {
  scheduler::LoadConfig config;
  config.session_mode = args.session_mode.value_or(config.session_mode);
  config.time_scale = args.time_scale.value_or(1.0);
  config.request_rate = args.request_rate;
  config.fixed_interval = args.fixed_interval;
  config.max_concurrency = args.max_concurrency;
  config.goodput = args.goodput;
  config.seed = args.load_seed();
  config.prompts_before = prompts_before(args);
  config.warmup_requests = args.warmup_requests;
  config.flush_cache = args.flush_cache;
  config.front_end = front_end(args, deployment, workload);
  config.router = deployment.router.config;
  config.elastic = deployment.router.elastic;
  config.decode_router = deployment.disaggregation.decode_router;
  return config;
}

}  // namespace tpsim::launch
