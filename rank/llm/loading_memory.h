// What quantising 16-bit weights while they are loaded leaves behind in a GPU's memory.
//
// SGLang first loads every weight in 16 bit, then replaces them module by module by a quantised copy
// (model_loader/loader.py, process_weights_after_loading). PyTorch's caching allocator puts copies into the
// gaps that earlier originals left, and can give back only what is wholly free: a llama-3.1-8b keeps 0.26 GiB
// more than its fp8 weights, in a real server as here.
#pragma once

#include <cstdint>
#include <vector>

#include "rank/llm/weight_spec.h"

namespace tpsim::rank {

// Bytes beyond those of the weights themselves that stay reserved, for the linear layers of `weights` in
// their order, layer by layer. Experts are quantised one by one into memory of their own and leave nothing.
std::uint64_t loading_leftover_bytes(const std::vector<WeightSpec>& weights);

}  // namespace tpsim::rank
