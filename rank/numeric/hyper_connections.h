// Hyper-connections (DeepSeek V4): several streams of the hidden state, of which each sublayer reads a
// mixture, and into which it says its result while they are mixed with one another by a doubly stochastic
// matrix.
//
// Sources: Xie et al. 2026 (mHC); Transformers 5.24, models/deepseek_v4 (DeepseekV4HyperConnection,
// DeepseekV4HyperHead); SGLang 0.5.23, models/deepseek_v4_mhc.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/token_batch.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank {

class HyperConnections {
 public:
  HyperConnections(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
      : model_(model), pool_(pool), times_(times) {}

  bool enabled() const { return model_.is_compressed(); }
  // Every stream becomes the embedding [tokens, hidden_size].
  void begin(std::span<const float> embedding);
  // Before a sublayer: `out` [tokens, hidden_size] becomes what it reads.
  void collapse(const StreamWeights& weights, float* out);
  // Behind it: `said` [tokens, hidden_size] goes into the streams, by the weights of the last collapse().
  void expand(const float* said);
  // What the last norm reads.
  void head(const StreamWeights& weights, float* out);

 private:
  void mix(const StreamWeights& weights);
  void sum(const float* factors, std::uint32_t token, float* out) const;

  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::uint32_t tokens_ = 0;
  std::vector<float> streams_;  // [tokens, streams, hidden_size]
  std::vector<float> normed_;   // the same
  std::vector<float> mixed_;    // [tokens, weights.mix.n()]: into, out of, and between the streams
};

}  // namespace tpsim::rank
