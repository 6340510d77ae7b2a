// What the gated delta-net layers of one rank keep for each request: the last tokens before the convolution
// and a matrix for each value head, in fp32. SGLang's MambaPool, by its slots; without a radix pool, where a
// request has one from its first token to its last, by the row of the request-to-page table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "rank/llm/layers.h"

namespace tpsim::rank {

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

}  // namespace tpsim::rank
