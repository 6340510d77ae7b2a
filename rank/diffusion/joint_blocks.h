// Blocks that several families share: a stream each for image and text with joint attention, and one stream
// of both (FLUX.1, HunyuanVideo, Qwen-Image, SD3).
#pragma once

#include "rank/diffusion/transformer.h"

namespace tpsim::rank {

// How often a block's activations cross memory beside products and attention, and its tiny kernels.
struct JointKernels {
  double stream = 26;  // of a stream's rows x width: norms, modulation, rotation, gates, residuals
  double single = 28;  // of one stream
  double small = 20;   // tiny kernels of a block of two streams
  double single_small = 12;
};
inline constexpr JointKernels kJointKernels{};

// MLP of ffn_ratio 4 with GELU. `modulated`: its own linear layers for modulation, 6 widths a stream.
void write_double_blocks(const TransformerConfig& t, const PassShape& s, double layers, OperatorList& list,
                         const JointKernels& kernels = kJointKernels);
// Attention and MLP beside each other: one product in of 3 + 4 widths, one out of 1 + 4.
void write_single_blocks(const TransformerConfig& t, const PassShape& s, double layers, OperatorList& list,
                         const JointKernels& kernels = kJointKernels);
// Two linear layers of what conditions all blocks: `from` elements, then `width`.
void write_embedder(const PassShape& s, std::uint64_t from, std::uint64_t width, OperatorList& list);

}  // namespace tpsim::rank
