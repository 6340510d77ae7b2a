// How much of a GPU's memory becomes KV cache, and the defaults that SGLang derives from the size of it.
//
// Source: SGLang 0.5 server_args.py (GPU memory settings, capture batch sizes) and model_runner.py
// (profile_max_num_token, max_num_reqs).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/number_format.h"
#include "proto/hardware.pb.h"
#include "rank/model/model_config.h"
#include "rank/model/shard.h"

namespace tpsim::rank {

struct ServerDefaults {
  double mem_fraction_static = 0;
  std::uint32_t chunked_prefill_size = 0;  // tokens
  std::uint32_t cuda_graph_max_bs = 0;
};
// dp_size: of attention. chunked_prefill_size (before data-parallel ranks share it) and cuda_graph_max_bs, where the user gave them, enter the memory fraction.
ServerDefaults default_server_args(const proto::HardwareProfile& profile, std::uint32_t tp_size,
                                   std::optional<std::uint32_t> chunked_prefill_size = std::nullopt,
                                   std::optional<std::uint32_t> cuda_graph_max_bs = std::nullopt,
                                   std::uint32_t dp_size = 1);
// Batch sizes that are captured, ascending, up to `max_bs`.
std::vector<std::uint32_t> capture_batch_sizes(std::uint32_t max_bs);

struct KvCapacity {
  std::uint64_t tokens = 0;        // a multiple of the page size
  std::uint64_t weight_bytes = 0;  // of one rank
  std::uint64_t kv_bytes_per_token = 0;
};
// Throws UserError where the model does not fit, with the sizes and what would help.
KvCapacity kv_capacity(const proto::HardwareProfile& profile, const ModelConfig& model, const Shard& shard,
                       double mem_fraction_static, NumberFormat kv_format, std::uint32_t page_size);

std::uint32_t default_max_running_requests(std::uint64_t pool_tokens, std::uint32_t context_length);

}  // namespace tpsim::rank
