#include "launch/server_args.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "launch/service_level_args.h"
#include "proto/base/error.h"
#include "proto/base/nearest.h"
#include "proto/base/text.h"

namespace tpsim::launch {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// No count of tokens or requests in a run comes near; larger ones are slips of the keyboard.
constexpr std::uint64_t kMaxCount = 1'000'000'000;
constexpr std::uint64_t kMaxPrefillTokens = 1'000'000;  // of one captured prefill

template <typename T>
struct Named {
  std::string_view name;
  T value;
};

constexpr std::array<Named<scheduler::SchedulePolicy>, 5> kSchedulePolicies = {{
    {"lpm", scheduler::SchedulePolicy::kLpm},
    {"dfs-weight", scheduler::SchedulePolicy::kDfsWeight},
    {"fcfs", scheduler::SchedulePolicy::kFcfs},
    {"lof", scheduler::SchedulePolicy::kLof},
    {"random", scheduler::SchedulePolicy::kRandom},
}};

constexpr std::array<Named<scheduler::LoadBalanceMethod>, 4> kLoadBalanceMethods = {{
    {"round_robin", scheduler::LoadBalanceMethod::kRoundRobin},
    {"auto", scheduler::LoadBalanceMethod::kRoundRobin},
    {"total_requests", scheduler::LoadBalanceMethod::kTotalRequests},
    {"total_tokens", scheduler::LoadBalanceMethod::kTotalTokens},
}};

constexpr std::array<Named<scheduler::RetractionPolicy>, 2> kRetractionPolicies = {{
    {"length", scheduler::RetractionPolicy::kLength},
    {"priority", scheduler::RetractionPolicy::kPriority},
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

constexpr std::array<Named<scheduler::SessionMode>, 2> kSessionModes = {{
    {"closed", scheduler::SessionMode::kClosed},
    {"timestamps", scheduler::SessionMode::kTimestamps},
}};

constexpr std::string_view kSweepableFlags[] = {
    "--hardware",
    "--tp-size",
    "--page-size",
    "--kv-cache-dtype",
    "--quantization",
    "--mem-fraction-static",
    "--max-total-tokens",
    "--max-running-requests",
    "--max-prefill-tokens",
    "--chunked-prefill-size",
    "--schedule-policy",
    "--schedule-conservativeness",
    "--radix-eviction-policy",
    "--cuda-graph-max-bs",
    "--request-rate",
    "--max-concurrency",
    "--time-scale",
};

[[noreturn]] void refuse_choice(std::string_view flag, std::string_view value,
                                std::span<const std::string_view> choices) {
  throw_user_error("{} {}: must be {}{}", flag, value, join_or(choices), did_you_mean(value, choices));
}

// Reads a word out of `table` into `target`.
template <typename T, std::size_t N, typename Target>
FlagSet::ReadValue choice(const std::array<Named<T>, N>& table, Target& target) {
  return [&table, &target](std::string_view flag, const std::string& value) {
    std::vector<std::string_view> names;
    for (const auto& entry : table) {
      if (entry.name == value) {
        target = entry.value;
        return;
      }
      names.push_back(entry.name);
    }
    refuse_choice(flag, value, names);
  };
}

FlagSet::ReadValue word(std::vector<std::string_view> choices, std::string& target) {
  return [choices = std::move(choices), &target](std::string_view flag, const std::string& value) {
    if (std::find(choices.begin(), choices.end(), value) == choices.end())
      refuse_choice(flag, value, choices);
    target = value;
  };
}

FlagSet::ReadValue text(std::string& target) {
  return [&target](std::string_view flag, const std::string& value) {
    if (value.empty()) throw_user_error("{}: the value is empty", flag);
    target = value;
  };
}

template <typename T>
FlagSet::ReadValue count(T& target, std::uint64_t min, std::uint64_t max = kMaxCount) {
  return [&target, min, max](std::string_view flag, const std::string& value) {
    using Number = std::conditional_t<std::is_arithmetic_v<T>, T, std::uint64_t>;
    if constexpr (std::is_arithmetic_v<T>)
      target = static_cast<Number>(parse_count(flag, value, min, max));
    else
      target = static_cast<typename T::value_type>(parse_count(flag, value, min, max));
  };
}

template <typename T>
FlagSet::ReadValue real(T& target, double min, bool min_included, double max, bool max_included) {
  return [=, &target](std::string_view flag, const std::string& value) {
    target = parse_real(flag, value, min, min_included, max, max_included);
  };
}

FlagSet::ReadValue backend_name(std::optional<std::string>& target) {
  return [&target](std::string_view flag, const std::string& value) {
    if (value.empty()) throw_user_error("{}: the value is empty, name a backend", flag);
    if (value.find_first_of("+,") != std::string::npos)
      throw_user_error(
          "{} {}: takes one backend; name a pair by --prefill-attention-backend and "
          "--decode-attention-backend",
          flag, value);
    target = value;
  };
}

// "fa3", or "flashinfer+fa3" (prefill+decode).
BackendPair parse_pair(std::string_view flag, const std::string& text) {
  const std::size_t plus = text.find('+');
  BackendPair pair{text.substr(0, plus), plus == std::string::npos ? text : text.substr(plus + 1)};
  if (pair.prefill.empty() || pair.decode.empty() || pair.decode.find('+') != std::string::npos)
    throw_user_error("{} {}: must be a backend or a pair PREFILL+DECODE", flag, text.empty() ? "''" : text);
  return pair;
}

// "all" alone sets `all` and names none.
void read_backend_list(std::string_view flag, const std::vector<std::string>& values,
                       std::vector<BackendPair>& target, bool& all) {
  target.clear();
  all = values.size() == 1 && values.front() == "all";
  if (all) return;
  for (const std::string& value : values) {
    std::size_t start = 0;
    while (start <= value.size()) {
      const std::size_t comma = std::min(value.find(',', start), value.size());
      BackendPair pair = parse_pair(flag, value.substr(start, comma - start));
      if (pair.prefill == "all" || pair.decode == "all")
        throw_user_error("{} {}: all stands for every backend and pair, give it alone", flag, value);
      for (const BackendPair& other : target) {
        if (other.name() == pair.name()) throw_user_error("{} {}: is named twice", flag, pair.name());
      }
      target.push_back(std::move(pair));
      start = comma + 1;
    }
  }
}

void read_capture_sizes(std::string_view flag, const std::vector<std::string>& values, std::uint64_t most,
                        std::vector<std::uint32_t>& target) {
  target.clear();
  for (const std::string& value : values)
    target.push_back(static_cast<std::uint32_t>(parse_count(flag, value, 1, most)));
  std::sort(target.begin(), target.end());
  target.erase(std::unique(target.begin(), target.end()), target.end());
}

void declare_parallel(FlagSet& flags, ParallelArgs& args) {
  flags.add_value("--dp-size,--dp,--data-parallel-size", "N",
                  "data-parallel ranks, with --enable-dp-attention (default 1)",
                  count(args.dp_size, 1, 1024));
  flags.add_switch("--enable-dp-attention",
                   "each of --dp-size parts of the GPUs attends for requests of its own; MLPs see all tokens",
                   args.enable_dp_attention);
  flags.add_value("--attn-dp-size,--attention-data-parallel-size", "N",
                  "the same in one flag, as SGLang 0.5.23 says it", count(args.attn_dp_size, 1, 1024));
  flags.add_switch("--enable-dp-lm-head", "each data-parallel rank has a head of its own",
                   args.enable_dp_lm_head);
  flags.add_value(
      "--load-balance-method", "METHOD",
      "of requests over data-parallel ranks: round_robin, total_requests or total_tokens (default "
      "round_robin)",
      choice(kLoadBalanceMethods, args.load_balance));
  flags.add_value("--moe-dense-tp-size", "N", "1: dense MLPs are whole on every GPU (default --tp)",
                  count(args.moe_dense_tp_size, 1, 1024));
  flags.add_value("--moe-a2a-backend", "NAME",
                  "how tokens come to their experts: none (every rank sees all) or deepep (default none)",
                  word({"none", "deepep"}, args.moe_a2a_backend));
  flags.add_value("--expert-distribution", "LOAD",
                  "of tokens over experts: uniform, zipf:ALPHA, or a JSON file with recorded logical_count "
                  "(default uniform)",
                  [&args](std::string_view flag, const std::string& value) {
                    text(args.expert_distribution.emplace())(flag, value);
                  });
}

void declare_deployment(FlagSet& flags, ServerArgs& args) {
  flags.accept_server_flags(args.ignored_flags);
  flags.group("Deployment");
  flags.add_value("--model-path,--model", "MODEL",
                  "catalogue name, or a folder with a Hugging Face config.json (required)",
                  text(args.model_path));
  flags.add_value("--hardware", "GPU",
                  "GPU of the catalogue, see `tpsim backends` (required; numeric execution takes the "
                  "backends' plans for it, default h200-sxm)",
                  text(args.hardware));
  flags.add_value("--tp-size,--tp,--tensor-parallel-size", "N", "GPUs of the deployment (default 1)",
                  count(args.tp_size, 1, 1024));
  flags.add_value("--executor", "KIND",
                  "modeled: ranks price their batches; numeric: they compute them (default modeled)",
                  word({"modeled", "numeric"}, args.executor));
  flags.add_value(
      "--load-format", "FORMAT",
      "of weights: auto, safetensors (for numeric execution), or dummy, seeded random ones: for a "
      "DeepSeek-V2 priced with every token at the same experts (default auto; dummy for a folder "
      "without weights in modeled execution)",
      [&args](std::string_view flag, const std::string& value) {
        word({"auto", "safetensors", "dummy"}, args.load_format.emplace())(flag, value);
      });
  flags.add_value(
      "--dtype", "TYPE",
      "of weights: auto, bfloat16, float16, half, or float32 and float for numeric execution "
      "(default auto: the model's)",
      [&args](std::string_view flag, const std::string& value) {
        word({"auto", "bfloat16", "float16", "half", "float32", "float"}, args.dtype)(flag, value);
        if (args.dtype == "half") args.dtype = "float16";
        if (args.dtype == "float") args.dtype = "float32";
      });
  flags.add_value("--ep-size,--ep,--expert-parallel-size", "N",
                  "groups of ranks that experts are spread over; within one, each expert is cut by its width "
                  "(default 1; --tp with deepep)",
                  count(args.ep_size, 1, 1024));
  declare_parallel(flags, args.parallel);
  flags.add_switch("--disable-shared-experts-fusion",
                   "shared experts run apart from the routed ones (DeepSeek V3, GLM)",
                   args.disable_shared_experts_fusion);
  flags.add_value("--context-length", "TOKENS", "prompt and output together (default: the model's)",
                  count(args.context_length, 2));
  flags.add_list(
      "--rank-slowdown", "RANK:FACTOR", "makes ranks compute slower, for example 3:1.2 (several allowed)",
      [&args](std::string_view, const std::vector<std::string>& values) { args.rank_slowdown = values; });
}

// Pages and format of the KV cache.
void declare_cache(FlagSet& flags, ServerArgs& args) {
  flags.add_value(
      "--page-size", "TOKENS", "of one KV page: 1, 16, 32, 64 or 128 (default: 1, or what the backend needs)",
      [&args](std::string_view flag, const std::string& value) {
        const bool good = value == "1" || value == "16" || value == "32" || value == "64" || value == "128";
        if (!good) throw_user_error("{} {}: must be 1, 16, 32, 64 or 128", flag, value);
        args.page_size = static_cast<std::uint32_t>(parse_count(flag, value, 1, 128));
      });
  flags.add_value("--kv-cache-dtype", "TYPE",
                  "auto, bf16, bfloat16, fp8_e4m3, fp8_e5m2, fp4_e2m1; for numeric execution also float16, "
                  "float32 (default auto: the model's; numeric: --dtype's, else float32)",
                  [&args](std::string_view flag, const std::string& value) {
                    word({"auto", "bf16", "bfloat16", "fp16", "float16", "fp32", "float32", "fp8_e4m3",
                          "fp8_e5m2", "fp4_e2m1"},
                         args.kv_cache_dtype)(flag, value);
                    if (args.kv_cache_dtype == "bf16") args.kv_cache_dtype = "bfloat16";
                    if (args.kv_cache_dtype == "fp16") args.kv_cache_dtype = "float16";
                    if (args.kv_cache_dtype == "fp32") args.kv_cache_dtype = "float32";
                  });
}

// Names are checked with the deployment, which knows device and KV cache.
void declare_sparse(FlagSet& flags, ServerArgs& args) {
  const auto kernel = [](std::optional<std::string>& to) {
    return [&to](std::string_view, const std::string& value) { to = value; };
  };
  flags.add_value(
      "--nsa-prefill-backend,--dsa-prefill-backend", "NAME",
      "kernel of sparse attention (DeepSeek-V3.2, GLM-5) in prefill: flashmla_sparse, flashmla_kv, "
      "flashmla_auto, fa3, trtllm or tilelang (default: by GPU and --kv-cache-dtype)",
      kernel(args.nsa_prefill_backend));
  flags.add_value("--nsa-decode-backend,--dsa-decode-backend", "NAME",
                  "kernel of sparse attention in decode (default: by GPU and --kv-cache-dtype)",
                  kernel(args.nsa_decode_backend));
}

void declare_attention(FlagSet& flags, ServerArgs& args, bool compare) {
  flags.group("Attention");
  if (compare) {
    flags.add_list(
        "--attention-backends", "LIST",
        "backends and PREFILL+DECODE pairs to compare, for example fa3,triton,flashinfer+fa3, or all "
        "that can serve (required; of a sweep, default: chosen for GPU and model)",
        [&args](std::string_view flag, const std::vector<std::string>& values) {
          read_backend_list(flag, values, args.attention_backends, args.all_attention_backends);
        });
  } else {
    flags.add_value("--attention-backend", "NAME",
                    "for prefill and decode (default: chosen for GPU and model)",
                    backend_name(args.attention_backend));
    flags.add_value("--prefill-attention-backend", "NAME", "for prefill (default: --attention-backend)",
                    backend_name(args.prefill_attention_backend));
    flags.add_value("--decode-attention-backend", "NAME", "for decode (default: --attention-backend)",
                    backend_name(args.decode_attention_backend));
  }
  declare_sparse(flags, args);
  declare_cache(flags, args);
  flags.add_value(
      "--quantization", "METHOD",
      "fp8 or w8a8_fp8 quantise 16-bit weights while they are loaded; of a quantised checkpoint only "
      "its own method is accepted (default: what its config.json declares)",
      text(args.quantization));
}

FlagSet::ReadValue priority_value(std::function<void(std::int32_t)> take) {
  return [take = std::move(take)](std::string_view flag, const std::string& value) {
    constexpr double kMost = std::numeric_limits<std::int32_t>::max();
    const double number = parse_real(flag, value, -kMost, true, kMost, true);
    if (number != std::floor(number)) throw_user_error("{} {}: must be a whole number", flag, value);
    take(static_cast<std::int32_t>(number));
  };
}

void declare_priorities(FlagSet& flags, ServerArgs& args) {
  scheduler::PriorityConfig& priority = args.priority;
  flags.add_switch("--enable-priority-scheduling",
                   "requests of a higher priority first, with fcfs or lof; they may preempt running ones",
                   priority.enable_scheduling);
  flags.add_switch("--schedule-low-priority-values-first", "a lower number is a higher priority",
                   priority.low_values_first);
  flags.add_value("--priority-scheduling-preemption-threshold", "N",
                  "a request preempts where its priority is higher by more (default 10)",
                  priority_value([&](std::int32_t value) { priority.preemption_threshold = value; }));
  flags.add_switch("--disable-priority-preemption", "priorities order the queue only",
                   priority.disable_preemption);
  flags.add_value("--default-priority-value", "N", "priority of requests without one (default: the lowest)",
                  priority_value([&](std::int32_t value) { priority.default_value = value; }));
  flags.add_switch("--abort-on-priority-when-disabled",
                   "refuses requests with a priority unless priorities are scheduled",
                   priority.abort_when_disabled);
  flags.add_value("--retraction-policy", "NAME",
                  "what gives way first where the pool is full: length (few generated tokens) or priority "
                  "(default length)",
                  choice(kRetractionPolicies, args.retraction_policy));
}

void check_priorities(const ServerArgs& args) {
  const bool enabled = args.priority.enable_scheduling;
  const auto policy = args.schedule_policy;
  if (enabled && policy != scheduler::SchedulePolicy::kFcfs && policy != scheduler::SchedulePolicy::kLof)
    throw_user_error("--enable-priority-scheduling: goes with --schedule-policy fcfs or lof, not {}",
                     to_string(policy));
  if (!enabled && args.retraction_policy == scheduler::RetractionPolicy::kPriority)
    throw_user_error("--retraction-policy priority: needs --enable-priority-scheduling");
  const std::pair<const char*, bool> dependent[] = {
      {"--schedule-low-priority-values-first", args.priority.low_values_first},
      {"--disable-priority-preemption", args.priority.disable_preemption},
      {"--default-priority-value", args.priority.default_value.has_value()}};
  for (const auto& [flag, given] : dependent) {
    if (given && !enabled) throw_user_error("{}: has no effect without --enable-priority-scheduling", flag);
  }
}

void declare_scheduling(FlagSet& flags, ServerArgs& args) {
  flags.group("Memory and batches");
  flags.add_value("--mem-fraction-static", "SHARE",
                  "of GPU memory for weights and KV cache (default: from GPU, --tp and batch sizes)",
                  real(args.mem_fraction_static, 0, false, 1, false));
  flags.add_value("--max-total-tokens", "TOKENS", "of the KV pool (default: what fits)",
                  count(args.max_total_tokens, 1, 1'000'000'000'000));
  flags.add_value("--max-running-requests", "N", "at once (default: from the pool and the context length)",
                  count(args.max_running_requests, 1));
  flags.add_value("--mamba-full-memory-ratio", "RATIO",
                  "memory for the states of gated delta-net layers to that of the KV cache (default 0.9)",
                  real(args.mamba_full_memory_ratio, 0, false, 1000, true));
  flags.add_value("--max-mamba-cache-size", "N",
                  "requests that such states are kept for (default: by the ratio)",
                  count(args.max_mamba_cache_size, 1));
  flags.add_value("--mamba-ssm-dtype", "TYPE",
                  "of such states: float32, bfloat16 or float16 (default: the model's)",
                  word({"float32", "bfloat16", "float16"}, args.mamba_ssm_dtype));
  for (const char* flag :
       {"--linear-attn-backend", "--linear-attn-decode-backend", "--linear-attn-prefill-backend"}) {
    flags.add_value(flag, "NAME", "kernels of gated delta-net layers: triton (default triton)",
                    [&args](std::string_view name, const std::string& value) {
                      if (value == "cutedsl" || value == "flashinfer" || value == "helion") {
                        throw_user_error(
                            "{} {}: only triton's kernels are simulated, which are SGLang's default; "
                            "use triton",
                            name, value);
                      }
                      word({"triton"}, args.linear_attn_backend)(name, value);
                    });
  }
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

// The flags of --dataset-name generated-shared-prefix.
void declare_shared_prefixes(FlagSet& flags, ServerArgs& args) {
  scheduler::SharedPrefixOptions& gsp = args.gsp;
  const auto noted = [&args](FlagSet::ReadValue read) {
    return [&args, read = std::move(read)](std::string_view flag, const std::string& value) {
      if (args.gsp_flag.empty()) args.gsp_flag = flag;
      read(flag, value);
    };
  };
  flags.add_value("--gsp-num-groups", "N", "system prompts of generated-shared-prefix (default 64)",
                  noted(count(gsp.num_groups, 1)));
  flags.add_value("--gsp-prompts-per-group", "N", "prompts with each of them (default 16)",
                  noted(count(gsp.prompts_per_group, 1)));
  flags.add_value("--gsp-system-prompt-len", "TOKENS", "of a system prompt (default 2048)",
                  noted(count(gsp.system_prompt_len, 1)));
  flags.add_value("--gsp-question-len", "TOKENS", "after the system prompt (default 128)",
                  noted(count(gsp.question_len, 1)));
  flags.add_value("--gsp-output-len", "TOKENS", "of an answer (default 256)",
                  noted(count(gsp.output_len, 1)));
  flags.add_value("--gsp-range-ratio", "R", "shortest length over longest (default 1.0)",
                  noted(real(gsp.range_ratio, 0, true, 1, true)));
  flags.add_value("--gsp-num-turns", "N", "questions of a conversation (default 1)",
                  noted(count(gsp.num_turns, 1)));
  flags.add_switch("--gsp-ordered", "group after group (default: shuffled)", gsp.ordered);
  flags.add_value("--gsp-group-distribution", "KIND",
                  "uniform, or zipf: the group of each prompt is drawn (default uniform)",
                  noted([&args](std::string_view flag, const std::string& value) {
                    std::string kind;
                    word({"uniform", "zipf"}, kind)(flag, value);
                    args.gsp_zipf = kind == "zipf";
                  }));
  flags.add_value("--gsp-zipf-alpha", "A", "of zipf: the k-th group comes 1/k^A as often as the first",
                  noted(real(gsp.zipf_alpha, 0, false, 1000, true)));
}

void declare_load(FlagSet& flags, ServerArgs& args) {
  flags.group("Load");
  flags.add_value("--trace", "FILE", "workload to serve; gzip is accepted", text(args.trace));
  flags.add_value("--trace-format", "FORMAT",
                  "auto, mooncake, azure, burstgpt, sharegpt or tpsim (default auto)",
                  word({"auto", "mooncake", "azure", "burstgpt", "sharegpt", "tpsim"}, args.trace_format));
  flags.add_value(
      "--dataset-name", "NAME",
      "a dataset of SGLang's benchmark instead of --trace, with its lengths and order for --seed: "
      "random, random-ids, generated-shared-prefix, or from --dataset-path sharegpt (lengths in "
      "tokens, no text) or mooncake (default: sharegpt where --dataset-path is given)",
      word({"random", "random-ids", "generated-shared-prefix", "sharegpt", "mooncake"}, args.dataset_name));
  flags.add_value("--dataset-path", "FILE", "of --dataset-name sharegpt or mooncake",
                  [&args](std::string_view flag, const std::string& value) {
                    text(args.dataset_path)(flag, value);
                    if (args.dataset_name.empty()) args.dataset_name = "sharegpt";  // the benchmark's default
                  });
  flags.add_value("--num-prompts", "N", "requests (default: the whole trace, or 1000 of a dataset)",
                  count(args.num_prompts, 1));
  flags.add_switch("--use-trace-timestamps",
                   "requests come at the times of the trace (so they do by default); refused with what "
                   "replaces those times",
                   args.use_trace_timestamps);
  flags.add_value("--random-input-len", "TOKENS", "longest random prompt (default 1024)",
                  count(args.random_input_len, 1));
  flags.add_value("--random-output-len", "TOKENS", "longest random output (default 1024)",
                  count(args.random_output_len, 1));
  flags.add_value("--random-range-ratio", "R", "shortest length over longest (default 0.0)",
                  real(args.random_range_ratio, 0, true, 1, true));
  declare_shared_prefixes(flags, args);
  flags.add_value(
      "--session-mode", "MODE",
      "later turns of the trace's conversations: closed sends one when the answer before it has "
      "ended and its think_time is over (no think_time: its distance in the trace after the turn "
      "before it was sent, not before the answer's end); timestamps sends all at the trace's times "
      "and reports which were early (default closed)",
      choice(kSessionModes, args.session_mode));
  flags.add_value(
      "--request-rate", "PER_S",
      "arrivals per second, of conversations where turns are closed; inf for all at once (default: "
      "the trace's times, random: inf)",
      real(args.request_rate, 0, false, kInfinity, true));
  flags.add_value("--request-interval", "KIND", "of --request-rate: poisson or fixed (default poisson)",
                  [&args](std::string_view flag, const std::string& value) {
                    std::string kind;
                    word({"poisson", "fixed"}, kind)(flag, value);
                    args.fixed_interval = kind == "fixed";
                  });
  flags.add_value("--max-concurrency", "N",
                  "most requests in flight; others wait to be sent (default: no limit)",
                  count(args.max_concurrency, 1));
  flags.add_value(
      "--front-end", "KIND",
      "what lies between clients and scheduler: ids (SGLang's HTTP server, prompts as token ids), "
      "text (prompts that it tokenizes) or none (default ids; none for traces of tpsim's own "
      "format, which name when requests reach the scheduler)",
      [&args](std::string_view flag, const std::string& value) {
        word({"ids", "text", "none"}, args.front_end.emplace())(flag, value);
      });
  flags.add_value("--time-scale,--mooncake-slowdown-factor", "X",
                  "multiplies the times of the trace, think times too; 0.5 is twice as fast (default 1)",
                  real(args.time_scale, 0, false, 1e6, true));
  flags.add_value(
      "--warmup-requests", "N",
      "copies of the first request, of at most 32 output tokens, served before the clock starts and "
      "counted only in the totals of the ranks; their prefix stays in the cache (default 0)",
      count(args.warmup_requests, 0, 1'000'000));
  flags.add_switch("--flush-cache", "empties the cache after --warmup-requests", args.flush_cache);
  flags.add_value("--seed", "N", "of dataset and arrivals (default: --random-seed)",
                  count(args.seed, 0, std::numeric_limits<std::uint32_t>::max()));
  flags.add_value("--random-seed", "N", "of everything random (default 1)",
                  count(args.random_seed, 0, std::numeric_limits<std::uint32_t>::max()));
}

void declare_service_levels(FlagSet& flags, ServerArgs& args) {
  flags.group("Service levels");
  flags.add_list("--goodput", "NAME:MS",
                 "milliseconds within which a request is good, of ttft, tpot and e2e, for example ttft:2000 "
                 "tpot:50; compare chooses by it",
                 [&args](std::string_view flag, const std::vector<std::string>& values) {
                   args.goodput = read_service_levels(flag, values);
                 });
  flags.add_switch("--max-goodput-rate",
                   "searches the highest request rate at which enough requests are good, by --request-rate, "
                   "or for a trace with times by --time-scale unless --request-rate is given",
                   args.max_goodput_rate);
  flags.add_value("--goodput-share", "SHARE", "of requests that is enough (default 0.99)",
                  real(args.goodput_share, 0, false, 1, true));
}

// "all", "every:N" and "none" as ServerArgs::steps_every.
std::uint64_t parse_steps(std::string_view flag, const std::string& value) {
  constexpr std::string_view kEvery = "every:";
  if (value == "all") return 1;
  if (value == "none") return 0;
  if (!value.starts_with(kEvery)) throw_user_error("{} {}: must be all, every:N or none", flag, value);
  return parse_count(fmt::format("{} every:", flag), value.substr(kEvery.size()), 1, 1'000'000'000);
}

void declare_output(FlagSet& flags, ServerArgs& args) {
  flags.group("Output");
  flags.add_value("--report-dir", "DIR", "receives report.json, requests.csv, steps.csv and report.html",
                  text(args.report_dir));
  flags.add_value("--steps", "WHICH", "steps that steps.csv holds: all, every:N or none (default all)",
                  [&args](std::string_view flag, const std::string& value) {
                    args.steps_every = parse_steps(flag, value);
                  });
  flags.add_switch("--compress", "writes requests.csv.gz and steps.csv.gz", args.compress);
  flags.add_value("--output-file", "FILE",
                  "appends a JSON line for each run, with the keys of SGLang's serving benchmark",
                  text(args.output_file));
  flags.add_value("--log-level", "LEVEL", "debug, info, warning or error (default warning)",
                  word({"debug", "info", "warning", "error"}, args.log_level));
  flags.add_switch("--quiet", "no progress bar and no table", args.quiet);
  flags.add_switch("--no-progress", "no progress bar", args.no_progress);
  flags.add_switch("--check-invariants", "checks the accounts of the KV pool after every step",
                   args.check_invariants);
  flags.add_value("--record-batches", "FILE", "receives the stream of batches, for `tpsim replay`",
                  text(args.record_batches));
}

// What a dataset needs, and the flags that are another one's.
void check_dataset(const ServerArgs& args) {
  const std::string& name = args.dataset_name;
  const bool random = name == "random" || name == "random-ids";
  const bool shared = name == "generated-shared-prefix";
  const bool file = name == "sharegpt" || name == "mooncake";
  for (const auto& [flag, given] :
       {std::pair<std::string_view, bool>{"--random-input-len", args.random_input_len.has_value()},
        {"--random-output-len", args.random_output_len.has_value()},
        {"--random-range-ratio", args.random_range_ratio.has_value()}}) {
    if (given && !random)
      throw_user_error("{}: is for --dataset-name random, {}", flag,
                       shared ? "use the --gsp-* flags" : "the lengths of a trace are its own");
  }
  if (!shared && (!args.gsp_flag.empty() || args.gsp.ordered))
    throw_user_error("{}: is for --dataset-name generated-shared-prefix",
                     args.gsp_flag.empty() ? "--gsp-ordered" : args.gsp_flag);
  if (args.gsp_zipf != args.gsp.zipf_alpha.has_value())
    throw_user_error("--gsp-zipf-alpha: {} --gsp-group-distribution zipf",
                     args.gsp_zipf ? "is required by" : "needs");
  if (shared && args.num_prompts)
    throw_user_error(
        "--num-prompts {}: generated-shared-prefix makes --gsp-num-groups times --gsp-prompts-per-group "
        "conversations, leave it out",
        *args.num_prompts);
  if (file && args.dataset_path.empty())
    throw_user_error("--dataset-path: is required by --dataset-name {}, nothing is downloaded", name);
  if (!file && !args.dataset_path.empty())
    throw_user_error("--dataset-path {}: is for --dataset-name sharegpt or mooncake{}", args.dataset_path,
                     random ? ", random prompts are lengths only" : "");
}

// The times at which requests come.
void check_times(const ServerArgs& args) {
  const bool timed = args.dataset_name.empty() || args.dataset_name == "mooncake";
  if (!timed && args.time_scale)
    throw_user_error("--time-scale {}: is for --trace, use --request-rate for {}",
                     format_real(*args.time_scale), args.dataset_name);
  if (!timed && args.use_trace_timestamps)
    throw_user_error("--use-trace-timestamps: is for traces, {} has no times", args.dataset_name);
  if (args.use_trace_timestamps && args.request_rate)
    throw_user_error(
        "--use-trace-timestamps: excludes --request-rate, which replaces the times of the trace");
  if (args.dataset_name == "mooncake" && args.request_rate)
    throw_user_error(
        "--request-rate {}: SGLang's benchmark keeps the times of mooncake whatever the rate; use --trace to "
        "replace them",
        format_real(*args.request_rate));
  if (args.fixed_interval && !args.request_rate)
    throw_user_error("--request-interval fixed: needs --request-rate");
  if (args.request_rate && args.time_scale)
    throw_user_error("--time-scale {}: excludes --request-rate, which replaces the times of the trace",
                     format_real(*args.time_scale));
}

void check_load(const ServerArgs& args) {
  if (args.trace.empty() && args.dataset_name.empty())
    throw_user_error("--trace: is required, or --dataset-name random for random lengths");
  if (!args.trace.empty() && !args.dataset_name.empty())
    throw_user_error("--dataset-name {}: excludes --trace, give one of the two", args.dataset_name);
  check_dataset(args);
  if (!args.dataset_name.empty() && args.session_mode)
    throw_user_error("--session-mode {}: is for --trace, the turns of {} have no times of their own",
                     to_string(*args.session_mode), args.dataset_name);
  if (!args.dataset_name.empty() && args.trace_format != "auto")
    throw_user_error("--trace-format {}: is for --trace", args.trace_format);
  if (args.flush_cache && args.warmup_requests == 0)
    throw_user_error("--flush-cache: the cache is empty at the start, it is for --warmup-requests");
  check_times(args);
}

void check_service_levels(const ServerArgs& args) {
  if (args.goodput_share && !args.max_goodput_rate)
    throw_user_error("--goodput-share {}: needs --max-goodput-rate, whose search it ends",
                     format_real(*args.goodput_share));
  if (!args.max_goodput_rate) return;
  if (!args.goodput.any())
    throw_user_error("--max-goodput-rate: needs --goodput, for example --goodput ttft:2000 tpot:50");
  if (args.max_concurrency != 0)
    throw_user_error(
        "--max-goodput-rate: excludes --max-concurrency {}, which holds requests back instead of offering "
        "them",
        args.max_concurrency);
  if (args.numeric())
    throw_user_error(
        "--max-goodput-rate: is for --executor modeled, numeric ranks tell no GPU's rate, only this "
        "machine's");
}

// What one of the executors needs or cannot do.
void check_executor(const ServerArgs& args) {
  if (args.numeric()) {
    if (!args.rank_slowdown.empty())
      throw_user_error("--rank-slowdown: is for --executor modeled, numeric ranks take the time they take");
    if (args.front_end && *args.front_end != "none")
      throw_user_error("--front-end {}: is for --executor modeled, numeric ranks run on the wall clock",
                       *args.front_end);
    return;
  }
  if (args.hardware.empty()) throw_user_error("--hardware: is required, for example h200-sxm");
  if (args.load_format == "safetensors")
    throw_user_error("--load-format safetensors: is for --executor numeric, modeled ranks read no weights");
  if (args.dtype == "float32")
    throw_user_error("--dtype float32: is for --executor numeric, use bfloat16 or float16");
  if (args.kv_cache_dtype == "float16" || args.kv_cache_dtype == "float32") {
    throw_user_error(
        "--kv-cache-dtype {}: is for --executor numeric, SGLang has no such cache; use auto, bf16, fp8_e4m3, "
        "fp8_e5m2 or fp4_e2m1",
        args.kv_cache_dtype);
  }
}

}  // namespace

void declare_server_flags(FlagSet& flags, ServerArgs& args, bool compare) {
  declare_deployment(flags, args);
  declare_attention(flags, args, compare);
  declare_scheduling(flags, args);
  declare_load(flags, args);
  declare_service_levels(flags, args);
  declare_output(flags, args);
  if (!compare) {
    flags.refuse_lists(sweepable_flags());
    return;
  }
  flags.take_lists(sweepable_flags());
  flags.add_value("--jobs", "N",
                  "settings of a sweep served at once by each process (default: its share of the cores)",
                  count(args.jobs, 1, 1024));
}

void declare_deployment_flags(FlagSet& flags, ServerArgs& args) {
  declare_deployment(flags, args);
  declare_attention(flags, args, /*compare=*/false);
  declare_scheduling(flags, args);
  flags.refuse_lists(sweepable_flags());
  flags.group("Output");
  flags.add_value("--random-seed,--seed", "N", "of everything random (default 1)",
                  count(args.random_seed, 0, std::numeric_limits<std::uint32_t>::max()));
  flags.add_value("--log-level", "LEVEL", "debug, info, warning or error (default warning)",
                  word({"debug", "info", "warning", "error"}, args.log_level));
  flags.add_switch("--no-progress", "no progress bar", args.no_progress);
  flags.add_switch("--check-invariants", "checks the accounts of the KV pool after every step",
                   args.check_invariants);
}

void declare_backends_flags(FlagSet& flags, ServerArgs& args) {
  flags.add_value("--hardware", "GPU", "only this device of the catalogue", text(args.hardware));
  flags.add_value("--model-path,--model", "MODEL", "for this model: which can run, and what forbids the rest",
                  text(args.model_path));
  declare_cache(flags, args);
}

void check_deployment_args(const ServerArgs& args) {
  if (args.model_path.empty())
    throw_user_error("--model-path: is required, a catalogue name or a folder with a config.json");
  check_executor(args);
  check_priorities(args);
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

void check_server_args(const ServerArgs& args, bool compare) {
  check_deployment_args(args);
  if (args.report_dir.empty() && args.steps_every != 1)
    throw_user_error("--steps: chooses rows of steps.csv, which --report-dir receives; give both");
  if (args.report_dir.empty() && args.compress)
    throw_user_error("--compress: is for the CSV files of --report-dir; give both");
  if (args.swept && (args.steps_every != 1 || args.compress))
    throw_user_error(
        "--{}: is for requests.csv and steps.csv, a sweep writes one row for each setting to sweep.csv; "
        "leave it out",
        args.compress ? "compress" : "steps");
  if (compare && args.attention_backends.empty() && !args.all_attention_backends && !args.swept)
    throw_user_error("--attention-backends: is required, for example fa3,flashinfer,flashinfer+fa3");
  if (compare && !args.record_batches.empty())
    throw_user_error("--record-batches {}: takes the batches of one run, use `tpsim run`",
                     args.record_batches);
  if (args.jobs && !args.swept)
    throw_user_error("--jobs {}: shares out the settings of a sweep, give a flag a list such as --tp 4,8",
                     *args.jobs);
  check_load(args);
  check_service_levels(args);
}

std::span<const std::string_view> sweepable_flags() { return kSweepableFlags; }

std::string_view to_string(scheduler::SchedulePolicy policy) {
  for (const auto& entry : kSchedulePolicies) {
    if (entry.value == policy) return entry.name;
  }
  return "?";
}

std::string_view to_string(scheduler::SessionMode mode) {
  for (const auto& entry : kSessionModes) {
    if (entry.value == mode) return entry.name;
  }
  return "?";
}

std::string_view to_string(scheduler::LoadBalanceMethod method) {
  for (const auto& entry : kLoadBalanceMethods) {
    if (entry.value == method) return entry.name;
  }
  return "?";
}

std::string_view to_string(scheduler::RetractionPolicy policy) {
  for (const auto& entry : kRetractionPolicies) {
    if (entry.value == policy) return entry.name;
  }
  return "?";
}

std::string_view to_string(kvcache::EvictionPolicy policy) {
  for (const auto& entry : kEvictionPolicies) {
    if (entry.value == policy) return entry.name;
  }
  return "?";
}

}  // namespace tpsim::launch
