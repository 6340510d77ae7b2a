// What capturing decode in CUDA graphs costs a server when it starts.
//
// Source: SGLang's cuda_graph_runner.py captures its batch sizes one after another, largest first, into one
// memory pool: two eager passes to warm up, then the captured one, for a batch of requests with one token
// each (get_cuda_graph_seq_len_fill_value). So the time is that of three eager passes of each size, as this
// model prices them, and of building the graph, in proportion to its layers. Compiling kernels for the first
// time is not counted: deepseek-v2-lite with flashmla took 12.6 s, 6.4 by this rule. Memory: least squares
// over memory_usage_gb.graph of the MHA servers of shared/data/serving (SGLang 0.5.12, H200: llama-3.1-8b
// with fa3 and triton, qwen3-30b-a3b, llama-3.1-70b): a constant, a part of each layer in each graph, and the
// logits of the largest batch in fp32; off by 8 % at most there. MLA backends keep workspaces that this does
// not know (0.37 GB measured for deepseek-v2-lite with flashmla, 1.31 GB with fa3).
#pragma once

#include <cstdint>
#include <span>

#include "proto/host.pb.h"
#include "rank/config/model_config.h"
#include "rank/llm/rank_model.h"

namespace tpsim::rank {

struct GraphCapture {
  double seconds = 0;
  std::uint64_t bytes = 0;  // of one GPU
};

// `sizes`: the captured batch sizes. `forward` prices the passes of one rank. `verified`: draft tokens of a
// request, where speculative decoding verifies some.
GraphCapture graph_capture_cost(const ModelConfig& model, std::span<const std::uint32_t> sizes,
                                RankModel& forward, const proto::HostProfile::GraphCapture& host,
                                std::uint32_t verified = 0);

}  // namespace tpsim::rank
