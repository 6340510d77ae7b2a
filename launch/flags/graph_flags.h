// Captured graphs of decode and prefill.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct GraphArgs {
  bool disable_cuda_graph = false;
  bool disable_decode_cuda_graph = false;
  bool disable_prefill_cuda_graph = false;  // also --disable-piecewise-cuda-graph
  std::optional<std::uint32_t> cuda_graph_max_bs;
  std::vector<std::uint32_t> cuda_graph_bs;
  std::optional<std::uint32_t> prefill_cuda_graph_max_tokens;
  std::vector<std::uint32_t> prefill_cuda_graph_tokens;
};

void declare_graphs(FlagSet& flags, GraphArgs& args);
void check_graphs(const GraphArgs& args);

}  // namespace tpsim::launch
