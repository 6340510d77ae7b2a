// Pools, batches and the queue.
#include "launch/flag_values.h"
#include "launch/server_flags.h"
#include "proto/base/error.h"
#include "scheduler/sglang_release.h"

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

// The pool of sliding-window layers.
void declare_window_pool(FlagSet& flags, ServerArgs& args) {
  flags.add_value("--swa-full-tokens-ratio", "RATIO",
                  "tokens of the pool of sliding-window layers to those of the others' (default 0.8; gpt-oss "
                  "and Llama 4 have such a pool)",
                  real(args.swa_full_tokens_ratio, 0, false, 1, true));
  flags.add_switch("--disable-hybrid-swa-memory", "one KV pool for sliding-window layers and all others",
                   args.disable_hybrid_swa_memory);
}

// States of gated delta-net layers.
void declare_delta_net_states(FlagSet& flags, ServerArgs& args) {
  flags.add_value("--mamba-full-memory-ratio", "RATIO",
                  "memory for the states of gated delta-net layers to that of the KV cache (default 0.9)",
                  real(args.mamba_full_memory_ratio, 0, false, 1000, true));
  flags.add_value(
      "--max-mamba-cache-size", "N",
      "such states that there is room for, a few for each running request (default: by the ratio)",
      count(args.max_mamba_cache_size, 1));
  flags.add_value("--mamba-ssm-dtype", "TYPE",
                  "of such states: float32, bfloat16 or float16 (default: the model's)",
                  word({"float32", "bfloat16", "float16"}, args.mamba_ssm_dtype));
  // --mamba-scheduler-strategy: its name before 0.5.23.
  for (const char* flag : {"--mamba-radix-cache-strategy", "--mamba-scheduler-strategy"}) {
    flags.add_value(
        flag, "NAME", "how the radix cache gets such states: auto, no_buffer or extra_buffer (default auto)",
        [&args](std::string_view name, const std::string& value) {
          if (value == "extra_buffer_lazy")
            throw_user_error("{} {}: is not simulated; use extra_buffer", name, value);
          word({"auto", "no_buffer", "extra_buffer"}, args.mamba_radix_cache_strategy)(name, value);
        });
  }
  flags.add_value("--mamba-track-interval", "TOKENS",
                  "between the states that it gets of a request that decodes (default 256)",
                  count(args.mamba_track_interval, 1));
  const auto linear = [&flags](const char* flag, const char* help, std::string& out) {
    flags.add_value(flag, "NAME", help, [&out](std::string_view name, const std::string& value) {
      if (value == "flashkda" || value == "nvidia_kda" || value == "ptx_kda" || value == "helion")
        throw_user_error(
            "{} {}: its kernels are for Kimi delta attention; gated delta-nets run triton, cutedsl or "
            "flashinfer",
            name, value);
      if (value == "intel_xpu")
        throw_user_error("{} {}: Intel's fused kernel is not simulated; use triton", name, value);
      word({"triton", "cutedsl", "flashinfer"}, out)(name, value);
    });
  };
  linear("--linear-attn-backend",
         "kernels of gated delta-net layers: triton, cutedsl or flashinfer (default triton)",
         args.linear_attn_backend);
  linear("--linear-attn-decode-backend", "the same for decoding (default: as --linear-attn-backend)",
         args.linear_attn_decode_backend);
  linear("--linear-attn-prefill-backend",
         "the same for prefill (default: as --linear-attn-backend, or flashinfer where SGLang takes it)",
         args.linear_attn_prefill_backend);
}

FlagSet::ReadValue pair_of_reals(std::vector<double>& out) {
  return [&out](std::string_view flag, const std::string& value) {
    const std::size_t comma = value.find(',');
    if (comma == std::string::npos) throw_user_error("{} {}: must be two numbers, A,B", flag, value);
    constexpr double kMost = 1e6;
    out = {parse_real(flag, value.substr(0, comma), 0, true, kMost, true),
           parse_real(flag, value.substr(comma + 1), 0, true, kMost, true)};
  };
}

}  // namespace

void declare_batches(FlagSet& flags, ServerArgs& args) {
  flags.group("Memory and batches");
  flags.add_value("--mem-fraction-static", "SHARE",
                  "of GPU memory for weights and KV cache (default: from GPU, --tp and batch sizes)",
                  real(args.mem_fraction_static, 0, false, 1, false));
  flags.add_value("--max-total-tokens", "TOKENS", "of the KV pool (default: what fits)",
                  count(args.max_total_tokens, 1, 1'000'000'000'000));
  flags.add_value("--max-running-requests", "N", "at once (default: from the pool and the context length)",
                  count(args.max_running_requests, 1));
  declare_window_pool(flags, args);
  declare_delta_net_states(flags, args);
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
  flags.add_value(
      "--pass-gap-ms", "PASS,REQUEST",
      "host time between two passes that overlap does not hide, of a pass and of each request that "
      "decodes in it (default 0,0)",
      pair_of_reals(args.pass_gap_ms));
  flags.add_value("--kernel-launch-us", "US",
                  "host time of launching one kernel of an eager pass (default: the GPU's, as measured with "
                  "SGLang 0.5.12)",
                  real(args.kernel_launch_us, 0, false, 1e6, true));
  flags.add_value(
      "--compile-seconds", "BATCH,CHUNK",
      "what a server that was not warmed up compiles at its first prefill of several requests, and "
      "of a whole chunk (default 0,0)",
      pair_of_reals(args.compile_seconds));
  flags.add_value("--compile-decode-seconds", "S",
                  "what such a server compiles at its first captured decode batch of several requests "
                  "(default 0)",
                  real(args.compile_decode_seconds, 0, true, 3600, true));
  flags.add_value(
      "--served-before", "LOADS",
      "of a server that compiles kernels for batches of sizes that it meets first: what it served since it "
      "started, as closed:1024:256:16:48,azure:0:60:1, or warmup (default: it has met every size)",
      [&args](std::string_view, const std::string& value) { args.served_before = value; });
  flags.add_value("--launch-queue", "N",
                  "launches of kernels and graphs that wait on the device before the host waits for room, 0 "
                  "for any number (default 264 on NVIDIA's GPUs)",
                  count(args.launch_queue, 0, 1'000'000));
  flags.add_value("--schedule-policy", "NAME",
                  "of the waiting queue: lpm, dfs-weight, fcfs, lof or random (default fcfs)",
                  choice(kSchedulePolicies, args.schedule_policy));
  flags.add_value("--sglang-version", "RELEASE",
                  "whose scheduling rules are followed: 0.5.12, 0.5.14 or 0.5.23 (default 0.5.23)",
                  [&args](std::string_view, const std::string& value) {
                    args.sglang_release = scheduler::parse_sglang_release(value);
                  });
  flags.add_value("--schedule-conservativeness", "X",
                  "larger reserves more for running requests (default 1.0)",
                  real(args.schedule_conservativeness, 0, true, 1000, true));
  declare_priorities(flags, args);
  flags.add_switch("--disable-radix-cache", "no reuse of prefixes", args.disable_radix_cache);
  flags.add_switch("--disable-chunked-prefix-cache",
                   "an MLA model's cached prefix is attended to by the absorbed kernel, never in chunks",
                   args.disable_chunked_prefix_cache);
  flags.add_switch("--flashinfer-mla-disable-ragged",
                   "flashinfer and flashmla extend an MLA model with the absorbed kernel only",
                   args.flashinfer_mla_disable_ragged);
  flags.add_value("--radix-eviction-policy", "NAME",
                  "lru, lfu, slru, fifo, mru, filo or priority (default lru)",
                  choice(kEvictionPolicies, args.radix_eviction_policy));
  flags.add_switch("--disable-overlap-schedule", "scheduling waits for the GPU and the GPU for scheduling",
                   args.disable_overlap_schedule);
  declare_graphs(flags, args);
}

std::string_view to_string(scheduler::SchedulePolicy policy) { return name_of(kSchedulePolicies, policy); }

std::string_view to_string(kvcache::EvictionPolicy policy) { return name_of(kEvictionPolicies, policy); }

}  // namespace tpsim::launch
