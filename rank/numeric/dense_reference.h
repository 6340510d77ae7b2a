// The plain way to the same logits: one sequence, all positions at once, no shards, no pages, no plans, sums
// in fp64. Slow on purpose; `tpsim verify` and the tests hold the fast way against it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/model/model_config.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class DenseReference {
 public:
  // REQUIRES: `weights` outlives this.
  DenseReference(const ModelConfig& model, const TensorSource& weights);
  // Logits [tokens.size(), vocab_size].
  std::vector<double> forward(std::span<const std::uint32_t> tokens) const;

 private:
  const ModelConfig model_;
  const TensorSource& weights_;
};

}  // namespace tpsim::rank
