// Prefill in captured pieces: everything between two attention calls replays a CUDA graph of a fixed number
// of tokens, attention itself runs eagerly.
//
// Source: SGLang's server_args.py and piecewise_cuda_graph_runner.py (0.5.12), arg_groups/cuda_graph_hook.py,
// memory_hook.py and prefill_cuda_graph_runner.py (0.5.23, where the pieces are called "breakable" graphs).
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::rank {

struct PrefillGraphs {
  std::vector<std::uint32_t> tokens =
      {};  // captured numbers of tokens, ascending; empty = prefill runs eagerly
  // A pass that would be padded to more than twice its tokens runs eagerly.
  // (_MAX_PREFILL_CUDA_GRAPH_PADDING_FACTOR)
  bool limit_padding = true;

  // The captured size that a pass of `rows` tokens is padded to; 0 = it runs eagerly.
  std::uint32_t bucket(std::uint32_t rows) const;
};

// Captured numbers of tokens up to `max_tokens`.
std::vector<std::uint32_t> capture_prefill_tokens(std::uint32_t max_tokens);

}  // namespace tpsim::rank
