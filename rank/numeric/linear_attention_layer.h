// A gated delta-net layer on one rank: projections, convolution, the rule itself (gated_delta_rule.h), the
// gated norm of its outputs, and the rank's part of the output projection.
#pragma once

#include <vector>

#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/gated_delta_states.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

class LinearAttentionLayer {
 public:
  LinearAttentionLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
      : model_(model), pool_(pool), times_(times) {}

  // `index`: of the layer among those of its kind. x: normed activations [tokens, hidden_size]; `out`
  // receives this rank's part of the output [tokens, hidden_size].
  void forward(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
               const LinearAttentionWeights& weights, GatedDeltaStates& states, const float* x, float* out);

 private:
  void find_states(const Pass& pass, std::uint32_t index, GatedDeltaStates& states);
  void convolve_all(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                    const LinearAttentionWeights& weights, GatedDeltaStates& states);

  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::vector<float> projected_;  // [tokens, conv_dim + values]: q, k, v, then the gate of the output
  std::vector<float> gates_;      // [tokens, 2 x value heads]: b, then a
  std::vector<float> convolved_;  // [tokens, conv_dim]
  std::vector<float> attended_;   // [tokens, values]
  std::vector<GatedDeltaStates::State*> of_request_;
  // Of each request, where its pass takes a snapshot: behind `count` of its new tokens (at least one).
  struct Snapshot {
    GatedDeltaStates::State* state = nullptr;
    std::uint32_t count = 0;
  };
  std::vector<Snapshot> snapshots_;
};

}  // namespace tpsim::rank
