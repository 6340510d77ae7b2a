#include "launch/flags/batch_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

constexpr std::array<Named<scheduler::SchedulePolicy>, 5> kSchedulePolicies = {{
    {"lpm", scheduler::SchedulePolicy::kLpm},
    {"dfs-weight", scheduler::SchedulePolicy::kDfsWeight},
    {"fcfs", scheduler::SchedulePolicy::kFcfs},
    {"lof", scheduler::SchedulePolicy::kLof},
    {"random", scheduler::SchedulePolicy::kRandom},
}};

constexpr std::array<Named<kvcache::EvictionPolicy>, 7> kEvictionPolicies = {{
    {"lru", kvcache::EvictionPolicy::kLru},
    {"lfu", kvcache::EvictionPolicy::kLfu},
    {"fifo", kvcache::EvictionPolicy::kFifo},
    {"mru", kvcache::EvictionPolicy::kMru},
    {"filo", kvcache::EvictionPolicy::kFilo},
    {"slru", kvcache::EvictionPolicy::kSlru},
    {"priority", kvcache::EvictionPolicy::kPriority},
}};

constexpr std::array<Named<scheduler::RetractionPolicy>, 2> kRetractionPolicies = {{
    {"length", scheduler::RetractionPolicy::kLength},
    {"priority", scheduler::RetractionPolicy::kPriority},
}};

// `target` is a number or an optional one.
template <typename T>
FlagSet::ReadValue priority_value(T& target) {
  return [&target](std::string_view flag, const std::string& value) {
    constexpr double kMost = std::numeric_limits<std::int32_t>::max();
    const double number = parse_real(flag, value, -kMost, true, kMost, true);
    if (number != std::floor(number)) throw_user_error("{} {}: must be a whole number", flag, value);
    target = static_cast<std::int32_t>(number);
  };
}

constexpr std::uint64_t kMaxPrefillTokens = 1'000'000;  // of one captured prefill

void read_capture_sizes(std::string_view flag, const std::vector<std::string>& values, std::uint64_t most,
                        std::vector<std::uint32_t>& target) {
  target.clear();
  for (const std::string& value : values)
    target.push_back(static_cast<std::uint32_t>(parse_count(flag, value, 1, most)));
  std::sort(target.begin(), target.end());
  target.erase(std::unique(target.begin(), target.end()), target.end());
}

}  // namespace

void declare_batches(FlagSet& flags, BatchArgs& args) {
  flags.add_value("--max-prefill-tokens", "TOKENS", "new tokens of one prefill batch (default 16384)",
                  count(args.max_prefill_tokens, 1));
  flags.add_value("--chunked-prefill-size", "TOKENS",
                  "longest piece of a prompt in one batch, -1 for no chunks (default: from the GPU)",
                  [&args](std::string_view flag, const std::string& value) {
                    if (value == "-1")
                      args.chunked_prefill_size = -1;
                    else if (value == "0" || value.rfind('-', 0) == 0)
                      throw_user_error("{} {}: must be a whole number from 1 to {}, or -1 for no chunks",
                                       flag, value, kMaxCount);
                    else
                      args.chunked_prefill_size =
                          static_cast<std::int64_t>(parse_count(flag, value, 1, kMaxCount));
                  });
  flags.add_switch("--enable-mixed-chunk", "a chunk of prefill and the decode batch in one pass",
                   args.enable_mixed_chunk);
  flags.add_value("--scheduler-recv-interval", "N",
                  "decode passes from one look at what has come to the next (default 1)",
                  count(args.scheduler_recv_interval, 1));
  scheduler::PrefillDelayerConfig& delayer = args.prefill_delayer;
  flags.add_switch("--enable-prefill-delayer",
                   "prefills wait until all data-parallel ranks have one, and until a large one fits",
                   delayer.enabled);
  flags.add_value("--prefill-delayer-max-delay-passes", "N", "passes that they wait at most (default 30)",
                  count(delayer.max_delay_passes, 1));
  flags.add_value("--prefill-delayer-token-usage-low-watermark", "SHARE",
                  "of a pool that is less full they do not wait",
                  real(delayer.token_usage_low_watermark, 0, true, 1, true));
  flags.add_value("--prefill-delayer-queue-min-ratio", "RATIO",
                  "they wait for so many requests of those that run, too",
                  real(delayer.queue_min_ratio, 0, true, 1000, true));
  flags.add_value("--prefill-delayer-max-delay-ms", "MS", "and for so long at most (default 5000)",
                  [&delayer](std::string_view flag, const std::string& value) {
                    delayer.max_delay_seconds = 1e-3 * parse_real(flag, value, 0, true, 1e9, true);
                  });
}

void declare_schedule(FlagSet& flags, BatchArgs& args) {
  flags.add_value("--schedule-policy", "NAME",
                  "of the waiting queue: lpm, dfs-weight, fcfs, lof or random (default fcfs)",
                  choice(kSchedulePolicies, args.schedule_policy));
  flags.add_value("--sglang-version", "RELEASE",
                  fmt::format("whose scheduling rules are followed: {} (default {})",
                              join_or(scheduler::sglang_release_names()), scheduler::default_release().name),
                  [&args](std::string_view, const std::string& value) {
                    args.sglang_release = scheduler::parse_sglang_release(value);
                  });
  flags.add_value("--schedule-conservativeness", "X",
                  "larger reserves more for running requests (default 1.0)",
                  real(args.schedule_conservativeness, 0, true, 1000, true));
  scheduler::PriorityConfig& priority = args.priority;
  flags.add_switch("--enable-priority-scheduling",
                   "requests of a higher priority first, with fcfs or lof; they may preempt running ones",
                   priority.enable_scheduling);
  flags.add_switch("--schedule-low-priority-values-first", "a lower number is a higher priority",
                   priority.low_values_first);
  flags.add_value("--priority-scheduling-preemption-threshold", "N",
                  "a request preempts where its priority is higher by more (default 10)",
                  priority_value(priority.preemption_threshold));
  flags.add_switch("--disable-priority-preemption", "priorities order the queue only",
                   priority.disable_preemption);
  flags.add_value("--default-priority-value", "N", "priority of requests without one (default: the lowest)",
                  priority_value(priority.default_value));
  flags.add_switch("--abort-on-priority-when-disabled",
                   "refuses requests with a priority unless priorities are scheduled",
                   priority.abort_when_disabled);
  flags.add_value("--retraction-policy", "NAME",
                  "what gives way first where the pool is full: length (few generated tokens) or priority "
                  "(default length)",
                  choice(kRetractionPolicies, args.retraction_policy));
  flags.add_switch("--disable-radix-cache", "no reuse of prefixes", args.disable_radix_cache);
}

void declare_eviction(FlagSet& flags, BatchArgs& args) {
  flags.add_value("--radix-eviction-policy", "NAME",
                  "lru, lfu, slru, fifo, mru, filo or priority (default lru)",
                  choice(kEvictionPolicies, args.radix_eviction_policy));
  flags.add_switch("--disable-overlap-schedule", "scheduling waits for the GPU and the GPU for scheduling",
                   args.disable_overlap_schedule);
}

void declare_graphs(FlagSet& flags, BatchArgs& args) {
  const auto sizes = [](std::vector<std::uint32_t>& target, std::uint64_t most) {
    return [&target, most](std::string_view flag, const std::vector<std::string>& values) {
      read_capture_sizes(flag, values, most, target);
    };
  };
  flags.add_switch("--disable-cuda-graph", "the host issues every kernel of decode and prefill",
                   args.disable_cuda_graph);
  flags.add_switch("--disable-decode-cuda-graph", "the same for decode alone",
                   args.disable_decode_cuda_graph);
  flags.add_switch("--disable-prefill-cuda-graph,--disable-piecewise-cuda-graph",
                   "the same for prefill alone", args.disable_prefill_cuda_graph);
  flags.add_value("--cuda-graph-max-bs,--cuda-graph-max-bs-decode", "N",
                  "largest captured batch (default: from GPU and --tp)",
                  count(args.cuda_graph_max_bs, 1, 65536));
  flags.add_list("--cuda-graph-bs,--cuda-graph-bs-decode", "N",
                 "captured batch sizes (default: SGLang's list up to the largest)",
                 sizes(args.cuda_graph_bs, 65536));
  flags.add_value("--cuda-graph-max-bs-prefill,--piecewise-cuda-graph-max-tokens", "TOKENS",
                  "largest prefill in captured pieces (default: --chunked-prefill-size)",
                  count(args.prefill_cuda_graph_max_tokens, 1, kMaxPrefillTokens));
  flags.add_list("--cuda-graph-bs-prefill,--piecewise-cuda-graph-tokens", "TOKENS",
                 "captured sizes of prefill (default: SGLang's list up to the largest)",
                 sizes(args.prefill_cuda_graph_tokens, kMaxPrefillTokens));
}

void check_batches(const BatchArgs& args) {
  const scheduler::SchedulePolicy policy = args.schedule_policy;
  const bool enabled = args.priority.enable_scheduling;
  if (enabled && policy != scheduler::SchedulePolicy::kFcfs && policy != scheduler::SchedulePolicy::kLof)
    throw_user_error("--enable-priority-scheduling: goes with --schedule-policy fcfs or lof, not {}",
                     to_string(policy));
  if (!enabled && args.retraction_policy == scheduler::RetractionPolicy::kPriority)
    throw_user_error("--retraction-policy priority: needs --enable-priority-scheduling");
  for (const auto& [flag, given] :
       {std::pair("--schedule-low-priority-values-first", args.priority.low_values_first),
        {"--disable-priority-preemption", args.priority.disable_preemption},
        {"--default-priority-value", args.priority.default_value.has_value()}})
    if (given && !enabled) throw_user_error("{}: has no effect without --enable-priority-scheduling", flag);
  const scheduler::PrefillDelayerConfig& delayer = args.prefill_delayer;
  if (!delayer.enabled && delayer != scheduler::PrefillDelayerConfig{})
    throw_user_error("--prefill-delayer-*: has no effect without --enable-prefill-delayer");
  if (!args.cuda_graph_bs.empty() && args.cuda_graph_max_bs &&
      args.cuda_graph_bs.back() != *args.cuda_graph_max_bs)
    throw_user_error("--cuda-graph-max-bs {}: contradicts --cuda-graph-bs, whose largest size is {}",
                     *args.cuda_graph_max_bs, args.cuda_graph_bs.back());
  if (!args.prefill_cuda_graph_tokens.empty() && args.prefill_cuda_graph_max_tokens &&
      args.prefill_cuda_graph_tokens.back() != *args.prefill_cuda_graph_max_tokens)
    throw_user_error(
        "--cuda-graph-max-bs-prefill {}: contradicts --cuda-graph-bs-prefill, whose largest size is {}",
        *args.prefill_cuda_graph_max_tokens, args.prefill_cuda_graph_tokens.back());
}

std::string_view to_string(scheduler::SchedulePolicy policy) { return name_of(kSchedulePolicies, policy); }

std::string_view to_string(kvcache::EvictionPolicy policy) { return name_of(kEvictionPolicies, policy); }

std::string_view to_string(scheduler::RetractionPolicy policy) {
  return name_of(kRetractionPolicies, policy);
}

}  // namespace tpsim::launch
