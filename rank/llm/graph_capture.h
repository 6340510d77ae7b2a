// CUDA graphs: what capturing decode costs a server when it starts, and prefill in captured pieces.
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
#include <vector>

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

// Prefill in captured pieces: everything between two attention calls replays a CUDA graph of a fixed number
// of tokens, attention itself runs eagerly.
//
// Source: SGLang's server_args.py and piecewise_cuda_graph_runner.py (0.5.12), arg_groups/cuda_graph_hook.py,
// memory_hook.py and prefill_cuda_graph_runner.py (0.5.23, where the pieces are called "breakable" graphs).
struct PrefillGraphs {
  // Captured numbers of tokens, ascending; empty = prefill runs eagerly.
  std::vector<std::uint32_t> tokens = {};
  // A pass that would be padded to more than twice its tokens runs eagerly.
  // (_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR)
  bool limit_padding = true;

  // The captured size that a pass of `rows` tokens is padded to; 0 = it runs eagerly.
  std::uint32_t bucket(std::uint32_t rows) const;
};

// Batch sizes of decode that are captured, ascending, up to `max_bs`; with speculative decoding they are
// denser.
std::vector<std::uint32_t> capture_batch_sizes(std::uint32_t max_bs, bool speculative = false);
// Captured numbers of tokens of prefill up to `max_tokens`.
std::vector<std::uint32_t> capture_prefill_tokens(std::uint32_t max_tokens);

}  // namespace tpsim::rank
