// The plain way to the same logits: one sequence, all positions at once, no shards, no pages, no plans, sums
// in fp64. Slow on purpose; `tpsim verify` and the tests hold the fast way against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "proto/base/number_format.h"
#include "rank/config/model_config.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// What a cache keeps of a token, which is then attended instead of what was computed.
struct KeptTokens {
  NumberFormat format = NumberFormat::kFp32;
  bool scaled_latents = false;  // fp8 latents of sparse attention with scales (round_scaled_latent)
  // MLA: tokens [first, second) of passes that expand keys and values, whose tokens attend one another as
  // they came out of the projections, and what the cache keeps of those before. All others attend what it
  // keeps.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> expanded_passes = {};
};

// The images of a sequence, encoded: what stands in the place of tokens' embeddings, and where.
struct DenseImages {
  struct Span {
    std::size_t place = 0;              // of the first token
    std::size_t rows = 0, columns = 0;  // of merged patches, for models with mrope
  };
  struct Row {
    std::size_t place = 0;      // of the token
    std::vector<float> values;  // [1 + deepstack, hidden_size]
  };
  std::vector<Span> spans;  // in order
  std::vector<Row> rows;
  // Of the first tokens, the end of what each sees, beyond itself (Gemma 3); tokens after these are causal.
  std::vector<std::uint32_t> ends = {};
};

class DenseReference {
 public:
  // REQUIRES: `weights` outlives this.
  DenseReference(const ModelConfig& model, const TensorSource& weights, const KeptTokens& kept = {});
  // Logits [tokens.size(), vocab_size].
  std::vector<double> forward(std::span<const std::uint32_t> tokens, const DenseImages& images = {}) const;

 private:
  const ModelConfig model_;
  const TensorSource& weights_;
  const KeptTokens kept_;
};

}  // namespace tpsim::rank
