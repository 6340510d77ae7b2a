// Sparse linear attention: each block of queries meets the blocks of keys whose means score highest exactly,
// and what is left by linear attention, whose state is one matrix of a head (arXiv 2509.24006).
#pragma once

#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention {

struct SlaPlan {
  double topk = 0.1;  // share of the key blocks
  std::uint32_t block_q = 128, block_k = 64;

  // Blocks of keys that a block of queries meets: one at least, where SGLang would meet none and divide by 0.
  double kept_blocks(double keys) const;
  // Key tokens that a block of queries meets.
  double kept(const DiffusionCall& call) const;
  // Everything but the exact part: means, scores and their top k, the feature maps, both products of the
  // linear part, its projection, and the sum.
  KernelCost beside(const DiffusionCall& call, const DenseKernel& kernel) const;
};
// The key that both of its backends take.
extern const DiffusionParameter kSlaTopk;

}  // namespace tpsim::attention
