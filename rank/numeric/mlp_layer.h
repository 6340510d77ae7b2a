// The MLP of one layer on one rank: dense, or experts.
#pragma once

#include <cstdint>
#include <vector>

#include "rank/linear/thread_pool.h"
#include "rank/model/model_config.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/router.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

class MlpLayer {
 public:
  MlpLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times);

  // Tokens [first, first + count).
  struct Rows {
    std::uint32_t first = 0, count = 0;
  };

  // x: normed activations [tokens, hidden_size]; `out` receives this rank's part [tokens, hidden_size].
  // `whole`: the tokens for which this rank computes a dense MLP, or shared experts, that are not cut over
  // ranks.
  void forward(const LayerWeights& weights, bool moe, const Shard& shard, const float* x,
               std::uint32_t tokens, Rows whole, float* out);

 private:
  void gated(const MlpWeights& weights, const float* x, std::uint32_t tokens, float* out);
  void gated_rows(const MlpWeights& weights, const float* x, std::uint32_t tokens, Rows rows, float* out);
  void experts(const MoeWeights& weights, const float* x, std::uint32_t tokens, Rows shared, float* out);

  struct Assigned {
    std::uint32_t token = 0;
    float weight = 0;
  };

  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::vector<float> gate_up_, inner_, scores_, gathered_, result_;
  std::vector<std::vector<Assigned>> assigned_;  // per expert
  std::vector<Routed> routed_;
};

}  // namespace tpsim::rank
