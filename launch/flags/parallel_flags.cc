#include "launch/flags/parallel_flags.h"

#include <cstdlib>

#include "launch/cli/flag_values.h"

namespace tpsim::launch {
namespace {

constexpr std::array<Named<scheduler::LoadBalanceMethod>, 5> kLoadBalanceMethods = {{
    {"round_robin", scheduler::LoadBalanceMethod::kRoundRobin},
    {"auto", scheduler::LoadBalanceMethod::kRoundRobin},
    {"total_requests", scheduler::LoadBalanceMethod::kTotalRequests},
    {"total_tokens", scheduler::LoadBalanceMethod::kTotalTokens},
    {"follow_bootstrap_room", scheduler::LoadBalanceMethod::kFollowBootstrapRoom},
}};

}  // namespace

void declare_parallel(FlagSet& flags, ParallelArgs& args) {
  flags.add_value("--ep-size,--ep,--expert-parallel-size", "N",
                  "groups of ranks that experts are spread over; within one, each expert is cut by its width "
                  "(default 1; --tp with deepep)",
                  count(args.ep_size, 1, 1024));
  flags.add_value(
      "--dp-size,--dp,--data-parallel-size", "N",
      "replicas of --tp GPUs each, or, with --enable-dp-attention, data-parallel ranks of them (default 1)",
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
      "of requests over data-parallel ranks or replicas: round_robin, total_requests, total_tokens or, of "
      "servers that prefill alone, follow_bootstrap_room (default there; else round_robin)",
      choice(kLoadBalanceMethods, args.load_balance));
  if (const char* partition = std::getenv("SGLANG_PP_LAYER_PARTITION")) args.pp_layer_partition = partition;
  flags.add_value("--pp-size,--pipeline-parallel-size", "N",
                  "pipeline stages of --tp GPUs each; layers are shared out evenly, or as the environment's "
                  "SGLANG_PP_LAYER_PARTITION says (default 1)",
                  count(args.pp_size, 1, 1024));
  flags.add_value("--nnodes", "N",
                  "nodes that the GPUs of --tp and --pp-size stand on (default: as few as have room)",
                  count(args.nnodes, 1, 1024));
  flags.add_value("--pp-max-micro-batch-size", "N",
                  "requests of one micro-batch (default: --max-running-requests over --pp-size)",
                  count(args.pp_max_micro_batch_size, 1));
  flags.add_value("--pp-async-batch-depth", "N",
                  "micro-batches beyond one for each stage, whose tokens wait at the last (default 0)",
                  count(args.pp_async_batch_depth, 0, 1024));
  flags.add_value("--moe-dense-tp-size", "N", "1: dense MLPs are whole on every GPU (default --tp)",
                  count(args.moe_dense_tp_size, 1, 1024));
  flags.add_value(
      "--moe-a2a-backend", "NAME",
      "how tokens come to their experts: none (every rank sees all), deepep, or mooncake, nixl, "
      "flashinfer and flashinfer_megamoe, as fast as deepep, or megamoe, one kernel for exchange and "
      "experts (default none)",
      word({"none", "deepep", "mooncake", "nixl", "flashinfer", "megamoe", "flashinfer_megamoe"},
           args.moe_a2a_backend));
  flags.add_value(
      "--deepep-mode", "MODE",
      "kernels of deepep: normal, low_latency, or auto: one for prefill, the other for decode (default auto)",
      word({"auto", "normal", "low_latency"}, args.deepep_mode));
  flags.add_value(
      "--deepep-config", "JSON",
      "multiprocessors of deepep's normal kernels, as a file or as text; its bandwidth stays that of "
      "its own default",
      text(args.deepep_config));
  flags.add_switch("--enable-two-batch-overlap",
                   "a pass is cut in two, one half computes while the other's tokens are on their way to "
                   "their experts and back",
                   args.two_batch_overlap);
  flags.add_value(
      "--tbo-token-distribution-threshold", "SHARE",
      "of a prefill's tokens: where whole requests leave one half less, a request is cut (default "
      "0.48)",
      real(args.tbo_threshold, 0, true, 0.5, true));
  flags.add_value(
      "--expert-distribution", "LOAD",
      "of tokens over experts: balanced (every rank gets as much), uniform (every expert is as likely "
      "as any other, and the ranks wait for the one that has most by chance), power_law:ALPHA, "
      "zipf:ALPHA, or a JSON file with recorded logical_count (default uniform)",
      text(args.expert_distribution));
  flags.add_switch("--enable-eplb",
                   "experts are placed for the load that they have, as by SGLang's balancer behind its first "
                   "round; moving them is not priced",
                   args.enable_eplb);
  flags.add_value("--ep-num-redundant-experts", "N",
                  "copies of experts in each layer; used with --enable-eplb or --init-expert-location, in "
                  "memory always (default 0)",
                  count(args.ep_num_redundant_experts, 0, 4096));
  flags.add_value("--eplb-algorithm", "NAME",
                  "auto, deepseek or deepseek_hierarchical, which is the same on one node (default auto)",
                  word({"auto", "deepseek", "deepseek_hierarchical"}, args.eplb_algorithm));
  flags.add_value("--eplb-rebalance-num-iterations", "N",
                  "passes from one round of the balancer to the next; changes nothing here",
                  count(args.eplb_rebalance_num_iterations, 1));
  flags.add_value(
      "--init-expert-location", "FILE",
      "trivial, or a JSON file with recorded logical_count, for which experts are placed at start; "
      "also the default of --expert-distribution (default trivial)",
      text(args.init_expert_location));
  flags.add_value(
      "--ep-dispatch-algorithm", "NAME",
      "which copy of an expert a token goes to: static or dynamic, each copy as often as any other",
      word({"static", "dynamic"}, args.ep_dispatch_algorithm));
}

std::string_view to_string(scheduler::LoadBalanceMethod method) {
  return name_of(kLoadBalanceMethods, method);
}

}  // namespace tpsim::launch
