// How the model is shared among the GPUs, beside --tp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/cli/flag_set.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct ParallelArgs {
  std::uint32_t ep_size = 1;
  std::uint32_t dp_size = 1;
  bool enable_dp_attention = false;
  std::optional<std::uint32_t> attn_dp_size;  // of SGLang 0.5.23: both of the above
  bool enable_dp_lm_head = false;
  std::uint32_t pp_size = 1;
  std::optional<std::uint32_t> nnodes;  // of --tp times --pp-size GPUs
  std::optional<std::uint32_t> pp_max_micro_batch_size;
  std::uint32_t pp_async_batch_depth = 0;
  std::string pp_layer_partition;  // SGLANG_PP_LAYER_PARTITION of the environment
  std::optional<std::uint32_t> moe_dense_tp_size;
  std::string moe_a2a_backend = "none";
  std::string deepep_mode = "auto";
  bool two_batch_overlap = false;
  double tbo_threshold = 0.48;
  std::string deepep_config;                       // JSON, or the name of a file that holds it
  std::optional<std::string> expert_distribution;  // default uniform, or what --init-expert-location says
  bool enable_eplb = false;
  std::uint32_t ep_num_redundant_experts = 0;
  std::string eplb_algorithm = "auto";
  std::optional<std::uint32_t> eplb_rebalance_num_iterations;
  std::string init_expert_location = "trivial";
  std::string ep_dispatch_algorithm;
  scheduler::LoadBalanceMethod load_balance = scheduler::LoadBalanceMethod::kRoundRobin;

  std::string distribution() const {
    return expert_distribution.value_or(init_expert_location == "trivial" ? "uniform" : init_expert_location);
  }
  bool data_parallel_attention() const { return enable_dp_attention || attn_dp_size.value_or(1) > 1; }
  // Deployments of --tp GPUs side by side, each with all of the model.
  std::uint32_t replicas() const { return data_parallel_attention() ? 1 : dp_size; }
};

void declare_parallel(FlagSet& flags, ParallelArgs& args);

std::string_view to_string(scheduler::LoadBalanceMethod method);

}  // namespace tpsim::launch
