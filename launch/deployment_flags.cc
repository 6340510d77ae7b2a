// Model, GPUs and how they share it.
#include <cstdlib>

#include "launch/flag_values.h"
#include "launch/server_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {

namespace {

constexpr std::array<Named<scheduler::LoadBalanceMethod>, 4> kLoadBalanceMethods = {{
    {"round_robin", scheduler::LoadBalanceMethod::kRoundRobin},
    {"auto", scheduler::LoadBalanceMethod::kRoundRobin},
    {"total_requests", scheduler::LoadBalanceMethod::kTotalRequests},
    {"total_tokens", scheduler::LoadBalanceMethod::kTotalTokens},
}};

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
  if (const char* partition = std::getenv("SGLANG_PP_LAYER_PARTITION")) args.pp_layer_partition = partition;
  flags.add_value("--pp-size,--pipeline-parallel-size", "N",
                  "pipeline stages of --tp GPUs each; layers are shared out evenly, or as the environment's "
                  "SGLANG_PP_LAYER_PARTITION says (default 1)",
                  count(args.pp_size, 1, 1024));
  flags.add_value("--pp-max-micro-batch-size", "N",
                  "requests of one micro-batch (default: --max-running-requests over --pp-size)",
                  count(args.pp_max_micro_batch_size, 1));
  flags.add_value("--pp-async-batch-depth", "N",
                  "micro-batches beyond one for each stage, whose tokens wait at the last (default 0)",
                  count(args.pp_async_batch_depth, 0, 1024));
  flags.add_value("--moe-dense-tp-size", "N", "1: dense MLPs are whole on every GPU (default --tp)",
                  count(args.moe_dense_tp_size, 1, 1024));
  flags.add_value("--moe-a2a-backend", "NAME",
                  "how tokens come to their experts: none (every rank sees all) or deepep (default none)",
                  word({"none", "deepep"}, args.moe_a2a_backend));
  flags.add_value("--deepep-mode", "MODE",
                  "kernels of deepep: normal, low_latency, or auto: one for prefill, the other for decode "
                  "(default auto)",
                  word({"auto", "normal", "low_latency"}, args.deepep_mode));
  flags.add_value("--expert-distribution", "LOAD",
                  "of tokens over experts: uniform, zipf:ALPHA, or a JSON file with recorded logical_count "
                  "(default uniform)",
                  [&args](std::string_view flag, const std::string& value) {
                    text(args.expert_distribution.emplace())(flag, value);
                  });
}

}  // namespace

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

std::string_view to_string(scheduler::LoadBalanceMethod method) {
  return name_of(kLoadBalanceMethods, method);
}

}  // namespace tpsim::launch
