// A layer with a state in place of keys and values on one rank: gated delta-nets and KDA (projections,
// convolution, the rule itself (gated_delta_step), the gated norm of its outputs, and the rank's part of the
// output projection), LFM2's short convolutions between two gates, and Mamba 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/llm/layers.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// What the linear layers of one rank keep for each request: the last tokens before the convolution and a
// matrix for each value head (none in LFM2), in fp32. SGLang's MambaPool, by its slots; without a radix pool,
// where a request has one from its first token to its last, by the row of the request-to-page table.
class GatedDeltaStates {
 public:
  explicit GatedDeltaStates(const LinearLayers& layers) : layers_(layers) {}

  struct State {
    std::vector<float> conv;      // [layers][conv_kernel - 1][conv_dim], oldest token first
    std::vector<float> temporal;  // [layers][num_v_heads][k_dim][v_dim]
  };

  // The state of a slot or row, which stays where it is. `fresh`: zero again, at a request's start.
  State& at(std::uint32_t slot, bool fresh = false) {
    State& state = states_[slot];
    if (!fresh && !state.conv.empty()) return state;
    state.conv.assign(layers_.count * conv_size(), 0.0F);
    state.temporal.assign(layers_.count * temporal_size(), 0.0F);
    return state;
  }
  // Slot 0 stands for zeros.
  void copy(std::uint32_t from, std::uint32_t to) {
    if (from == 0) {
      at(to, /*fresh=*/true);
    } else {
      at(to) = at(from);
    }
  }
  float* conv(State& state, std::uint32_t layer) const { return state.conv.data() + layer * conv_size(); }
  float* temporal(State& state, std::uint32_t layer) const {
    return state.temporal.data() + layer * temporal_size();
  }

 private:
  std::size_t conv_size() const { return (layers_.conv_kernel - 1) * layers_.conv_dim(); }
  std::size_t temporal_size() const {
    return std::size_t{layers_.num_v_heads} * layers_.k_dim * layers_.v_dim;
  }

  const LinearLayers layers_;
  std::map<std::uint32_t, State> states_;
};

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
  // What the output is weighed by and how fast states fade, where projections of low rank say it.
  void project_narrow(const LinearAttentionWeights& weights, const float* x, std::uint32_t tokens);
  void short_conv(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                  const LinearAttentionWeights& weights, GatedDeltaStates& states);
  void delta_rule(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                  const LinearAttentionWeights& weights, GatedDeltaStates& states);
  void mamba2(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
              const LinearAttentionWeights& weights, GatedDeltaStates& states);
  // Of head `head` and token `t`: fills `decays`, one for each element of a key or one for all, and says how
  // far they are apart.
  std::uint32_t decays_of(const LinearLayers& layers, const LinearAttentionWeights& weights,
                          std::uint32_t head, std::size_t t, std::vector<float>& decays) const;

  std::vector<float> projected_;  // [tokens, qkvz.n()]: what is convolved, then gates (and Mamba 2's steps)
  std::vector<float> gates_;      // [tokens, ba.n()]: b, then a
  std::vector<float> narrow_, decays_, output_gates_;  // KDA
  std::vector<float> convolved_;                       // [tokens, conv_dim]
  std::vector<float> attended_;                        // [tokens, values]
  std::vector<GatedDeltaStates::State*> of_request_;
  // Of each request, where its pass takes a snapshot: after `count` of its new tokens (at least one).
  struct Snapshot {
    GatedDeltaStates::State* state = nullptr;
    std::uint32_t count = 0;
  };
  std::vector<Snapshot> snapshots_;
};

}  // namespace tpsim::rank
