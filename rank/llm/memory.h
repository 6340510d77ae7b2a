// How much of a GPU's memory becomes KV cache, and the defaults that SGLang derives from the size of it.
//
// Source: SGLang 0.5.12 server_args.py (_handle_gpu_memory_settings) and 0.5.23 arg_groups/memory_hook.py and
// hardware_backend/npu/utils.py; model_runner.py (profile_max_num_token, max_num_reqs) and
// model_runner_kv_cache_mixin.py (handle_max_mamba_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/number_format.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/weight_spec.h"

namespace tpsim::rank {

struct BatchDefaults {
  std::uint32_t chunked_prefill_size = 0;  // tokens
  std::uint32_t cuda_graph_max_bs = 0;
};
// By the memory of the device. `larger_below_35_gib`: as releases do since 0.5.23 on GPUs of 20 to 35 GiB.
BatchDefaults default_batches(const proto::HardwareProfile& profile, std::uint32_t tp_size,
                              bool larger_below_35_gib);

// What memory is kept free for, besides weights and KV cache.
struct MemoryReserve {
  std::uint32_t tp_size = 1;
  std::uint32_t dp_size = 1;  // of attention
  std::uint32_t activation_tokens =
      0;  // of the largest prefill: its chunk, or the batch where there are none
  std::uint32_t cuda_graph_max_bs = 0;  // 0: no decode is captured
  std::uint32_t prefill_captures = 0;   // captured sizes of prefill; 0: it runs eagerly
  bool mla = false;
  std::uint64_t draft_mib = 0;  // of a draft model
};
// --mem-fraction-static, to three digits.
double default_mem_fraction(const proto::HardwareProfile& profile, const MemoryReserve& reserve);

// Which phases are captured on a device unless the user says otherwise.
struct DeviceGraphs {
  bool decode = false;
  bool prefill = false;
};
DeviceGraphs default_graphs(const proto::HardwareProfile& profile);

// How the memory is shared where gated delta-net layers keep a state for each request.
struct StatePool {
  double full_memory_ratio = 0.9;  // bytes of states to bytes of KV cache (--mamba-full-memory-ratio)
  std::optional<std::uint64_t> slots = std::nullopt;  // states that are kept; none: by the ratio
  // Speculative decoding: beside them each running request has one after every token that is verified
  // (_handle_max_mamba_cache of SGLang 0.5.23's mem_cache/kv_cache_configurator.py). At most
  // running_requests run, and no more than have slots_per_request of the pool.
  std::uint32_t verified_tokens = 0;
  std::uint32_t running_requests = 0;
  std::uint32_t slots_per_request = 1;
};

// A draft model that shares the memory.
struct DraftMemory {
  std::uint64_t weight_bytes = 0;
  double layers = 0;       // its layers, in those of the target with KV: what its KV takes for each token
  bool from_pool = false;  // weights and KV lessen the pool; otherwise memory was kept free for them
};

// How it is shared where window layers have a pool of their own.
struct WindowPool {
  std::uint32_t window = 0;        // tokens; 0: they have none
  double full_tokens_ratio = 0.8;  // its tokens to those of the other layers' pool (--swa-full-tokens-ratio)
  std::uint64_t tokens = 0;        // of it, whatever the others have; 0: by the ratio
};

// The most tokens of the window pool that running requests hold at a time, without a radix pool (SGLang
// 0.5.23 model_executor/pool_configurator.py, compute_swa_request_cap).
std::uint64_t most_window_tokens(std::uint32_t window, std::uint32_t page_size, std::uint32_t requests,
                                 std::uint32_t chunked_prefill_size, bool overlap);

struct KvCapacity {
  std::uint64_t tokens = 0;                // a multiple of the page size
  std::uint64_t window_tokens = 0;         // of the pool of window layers; 0: they have none
  std::uint64_t state_slots = 0;           // states that there is room for; 0: the model has none
  std::uint64_t state_bytes = 0;           // of one of them, all layers
  std::uint64_t verified_state_bytes = 0;  // of all after tokens that are verified
  std::uint64_t weight_bytes = 0;          // of one rank
  std::uint64_t kv_bytes_per_token =
      0;  // without window layers where these have a pool of their own; with a draft model's
  std::uint64_t window_bytes_per_token = 0;
};
// Throws UserError where the model does not fit, with the sizes and what would help.
KvCapacity kv_capacity(const proto::HardwareProfile& profile, const ModelConfig& model, const Shard& shard,
                       double mem_fraction_static, NumberFormat kv_format, std::uint32_t page_size,
                       const StatePool& states = {}, std::uint32_t sparse_token_bytes = 0,
                       const WindowPool& windows = {}, const DraftMemory& draft = {});
// The window pool beside one of `tokens`. Throws UserError where it holds not one request.
std::uint64_t window_pool_tokens(const WindowPool& windows, std::uint64_t tokens, std::uint32_t page_size);

std::uint32_t default_max_running_requests(std::uint64_t pool_tokens, std::uint32_t context_length);

// Bytes beyond those of the weights themselves that stay reserved, for the linear layers of `weights` in
// their order, layer by layer. Experts are quantised one by one into memory of their own and leave nothing.
std::uint64_t loading_leftover_bytes(const std::vector<WeightSpec>& weights);

}  // namespace tpsim::rank
