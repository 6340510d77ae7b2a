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

  // x: normed activations [tokens, hidden_size]; `out` receives this rank's part [tokens, hidden_size].
  void forward(const LayerWeights& weights, bool moe, const float* x, std::uint32_t tokens, float* out);

 private:
  void gated(const MlpWeights& weights, const float* x, std::uint32_t tokens, float* out);
  void experts(const MoeWeights& weights, const float* x, std::uint32_t tokens, float* out);

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
