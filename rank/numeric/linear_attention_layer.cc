#include "rank/numeric/linear_attention_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

}  // namespace

// The states of the pass. The first layer of them begins new ones in all.
void LinearAttentionLayer::find_states(const Pass& pass, std::uint32_t index, GatedDeltaStates& states) {
  const TokenBatch& batch = pass.batch();
  for (std::size_t i = 0; index == 0 && i < batch.state_copy_to.size(); ++i)
    states.copy(batch.state_copy_from[i], batch.state_copy_to[i]);
  of_request_.clear();
  for (std::uint32_t i = 0; i < pass.requests(); ++i) {
    of_request_.push_back(batch.state_slots.empty()
                              ? &states.at(batch.row(i), index == 0 && batch.prefix_lens[i] == 0)
                              : &states.at(batch.state_slots[i]));
  }
  snapshots_.assign(pass.requests(), {});
  for (const StateSnapshot& wanted : batch.state_snapshots)
    snapshots_[wanted.request] = {&states.at(wanted.slot), wanted.tokens - batch.prefix_lens[wanted.request]};
}

void LinearAttentionLayer::convolve_all(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                                        const LinearAttentionWeights& weights, GatedDeltaStates& states) {
  const std::size_t channels = layers.conv_dim();
  const std::size_t stride = weights.qkvz.n();
  const std::uint32_t kernel = layers.conv_kernel;
  const bool silu = layers.kind != LinearKind::kShortConv && layers.kind != LinearKind::kMamba2;
  convolved_.resize(pass.tokens() * channels);
  pool_.parallel_for(pass.requests(), [&](std::uint32_t request, std::uint32_t) {
    const std::uint32_t first = pass.first_rows()[request];
    const std::uint32_t count = pass.batch().q_lens[request];
    float* const window = states.conv(*of_request_[request], index);
    // Input i of this pass, or (negative) the window's.
    const auto input = [&](std::int64_t i) -> const float* {
      return i >= 0 ? projected_.data() + (first + static_cast<std::size_t>(i)) * stride
                    : window + static_cast<std::size_t>(i + kernel - 1) * channels;
    };
    std::vector<const float*> inputs(kernel);
    for (std::uint32_t t = 0; t < count; ++t) {
      for (std::uint32_t i = 0; i < kernel; ++i) inputs[i] = input(std::int64_t{t} + i - (kernel - 1));
      convolve(inputs, channels, weights.conv.data(), silu, convolved_.data() + (first + t) * channels);
    }
    // Oldest first: what moves up is read before it is written over.
    const auto move_on = [&](std::uint32_t tokens, float* to) {
      for (std::uint32_t i = 0; i + 1 < kernel; ++i) {
        const float* const from = input(std::int64_t{tokens} + i - (kernel - 1));
        std::memmove(to + i * channels, from, channels * sizeof(float));
      }
    };
    const Snapshot& snapshot = snapshots_[request];
    if (snapshot.state != nullptr) move_on(snapshot.count, states.conv(*snapshot.state, index));
    move_on(count, window);
  });
}

void LinearAttentionLayer::forward(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                                   const LinearAttentionWeights& weights, GatedDeltaStates& states,
                                   const float* x, float* out) {
  const std::uint32_t tokens = pass.tokens();
  const bool short_conv = layers.kind == LinearKind::kShortConv;
  const bool mamba = layers.kind == LinearKind::kMamba2;
  projected_.resize(std::size_t{tokens} * weights.qkvz.n());
  gates_.resize(std::size_t{tokens} * weights.ba.n());
  attended_.resize(std::size_t{tokens} * layers.num_v_heads * layers.v_dim);
  {
    const Stopwatch watch(times_.gemm);
    weights.qkvz.multiply(x, tokens, projected_.data(), pool_);
    if (!short_conv && !mamba) weights.ba.multiply(x, tokens, gates_.data(), pool_);
    if (layers.kind == LinearKind::kKda) project_narrow(weights, x, tokens);
  }
  {
    const Stopwatch watch(times_.attention);
    find_states(pass, index, states);
    if (short_conv) {
      this->short_conv(pass, index, layers, weights, states);
    } else if (mamba) {
      mamba2(pass, index, layers, weights, states);
    } else {
      convolve_all(pass, index, layers, weights, states);
      delta_rule(pass, index, layers, weights, states);
    }
  }
  const Stopwatch watch(times_.gemm);
  weights.out.multiply(attended_.data(), tokens, out, pool_);
}

void LinearAttentionLayer::project_narrow(const LinearAttentionWeights& weights, const float* x,
                                          std::uint32_t tokens) {
  const std::uint32_t both = weights.narrow.n();
  narrow_.resize(std::size_t{tokens} * both);
  weights.narrow.multiply(x, tokens, narrow_.data(), pool_);
  const auto widen = [&](const PackedMatrix& matrix, std::uint32_t first, std::vector<float>& to) {
    to.resize(std::size_t{tokens} * matrix.n());
    matrix.multiply(narrow_.data() + first, tokens, both, to.data(), matrix.n(), nullptr, pool_);
  };
  widen(weights.decays, 0, decays_);
  widen(weights.gates, both / 2, output_gates_);
}

// Gate x, convolve, gate again.
void LinearAttentionLayer::short_conv(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                                      const LinearAttentionWeights& weights, GatedDeltaStates& states) {
  const std::size_t channels = layers.conv_dim();
  pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t) {
    float* const row = projected_.data() + 3 * channels * t;
    for (std::size_t c = 0; c < channels; ++c) row[c] *= row[channels + c];
  });
  convolve_all(pass, index, layers, weights, states);
  pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t) {
    const float* const gate = projected_.data() + (3 * std::size_t{t} + 2) * channels;
    for (std::size_t c = 0; c < channels; ++c)
      attended_[t * channels + c] = convolved_[t * channels + c] * gate[c];
  });
}

// Mamba 2 (Dao and Gu 2024): S <- exp(-exp(A) d) S + d k v^T, o = S^T q + D v, with d the softplus of a
// token's step; then o by the SiLU of its gate, normed within a group of heads. States are [v_dim, k_dim].
void LinearAttentionLayer::mamba2(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                                  const LinearAttentionWeights& weights, GatedDeltaStates& states) {
  convolve_all(pass, index, layers, weights, states);
  const std::size_t channels = layers.conv_dim();
  const std::uint32_t heads = layers.num_v_heads;
  const std::size_t k_dim = layers.k_dim, v_dim = layers.v_dim;
  const std::size_t values = heads * v_dim, keys = layers.num_k_heads * k_dim;
  const std::size_t stride = weights.qkvz.n();
  pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t) {
    float* const row = convolved_.data() + t * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      if (!weights.conv_bias.empty()) row[c] += weights.conv_bias[c];
      row[c] *= sigmoid(row[c]);
    }
  });
  pool_.parallel_for(pass.requests() * heads, [&](std::uint32_t task, std::uint32_t) {
    const std::uint32_t request = task / heads;
    const std::uint32_t head = task % heads;
    const std::size_t group = head / (heads / layers.num_k_heads);
    const float rate = std::exp(weights.a_log[head]);
    float* const state = states.temporal(*of_request_[request], index) + head * v_dim * k_dim;
    for (std::uint32_t i = 0; i < pass.batch().q_lens[request]; ++i) {
      const std::size_t t = std::size_t{pass.first_rows()[request]} + i;
      const float* const v = convolved_.data() + t * channels + head * v_dim;
      const float* const k = convolved_.data() + t * channels + values + group * k_dim;
      const float* const q = k + keys;
      const float step = softplus(projected_[t * stride + channels + values + head] + weights.dt_bias[head]);
      const float decay = std::exp(-rate * step);
      for (std::size_t j = 0; j < v_dim; ++j) {
        float* const row = state + j * k_dim;
        float said = 0;
        for (std::size_t c = 0; c < k_dim; ++c) said += (row[c] = row[c] * decay + step * v[j] * k[c]) * q[c];
        attended_[t * values + head * v_dim + j] = said + weights.skip[head] * v[j];
      }
      const Snapshot& snapshot = snapshots_[request];
      if (snapshot.state != nullptr && i + 1 == snapshot.count)
        std::copy_n(state, k_dim * v_dim, states.temporal(*snapshot.state, index) + head * k_dim * v_dim);
    }
  });
  const auto size = static_cast<std::uint32_t>(values / layers.num_k_heads);
  pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t) {
    float* const row = attended_.data() + t * values;
    silu_and_mul(projected_.data() + t * stride + channels, row, static_cast<std::uint32_t>(values), row);
    for (std::size_t first = 0; first < values; first += size)
      rms_norm(row + first, size, weights.norm.data() + first, 0, static_cast<float>(model_.rms_norm_eps),
               row + first);
  });
}

std::uint32_t LinearAttentionLayer::decays_of(const LinearLayers& layers,
                                              const LinearAttentionWeights& weights, std::uint32_t head,
                                              std::size_t t, std::vector<float>& decays) const {
  const float rate = std::exp(weights.a_log[head]);
  const auto decay = [rate](float x) { return std::exp(-rate * softplus(x)); };
  if (layers.kind != LinearKind::kKda) {
    const std::uint32_t heads = layers.num_v_heads;
    decays.assign(1, decay(gates_[t * 2 * heads + heads + head] + weights.dt_bias[head]));
    return 0;
  }
  decays.resize(layers.k_dim);
  const std::size_t first = std::size_t{head} * layers.k_dim;
  const float* const row = decays_.data() + t * weights.decays.n() + first;
  for (std::uint32_t i = 0; i < layers.k_dim; ++i) decays[i] = decay(row[i] + weights.dt_bias[first + i]);
  return 1;
}

void LinearAttentionLayer::delta_rule(const Pass& pass, std::uint32_t index, const LinearLayers& layers,
                                      const LinearAttentionWeights& weights, GatedDeltaStates& states) {
  const bool kda = layers.kind == LinearKind::kKda;
  const std::uint32_t heads = layers.num_v_heads;
  const std::size_t channels = layers.conv_dim();
  const std::uint32_t values = heads * layers.v_dim;
  const std::uint32_t keys = layers.num_k_heads * layers.k_dim;
  const std::uint32_t group = heads / layers.num_k_heads;
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  pool_.parallel_for(pass.requests() * heads, [&](std::uint32_t task, std::uint32_t) {
    const std::uint32_t request = task / heads;
    const std::uint32_t head = task % heads;
    const std::size_t of_head = std::size_t{head} * layers.v_dim;
    float* const state = states.temporal(*of_request_[request], index) + of_head * layers.k_dim;
    std::vector<float> decays;
    for (std::uint32_t i = 0; i < pass.batch().q_lens[request]; ++i) {
      const std::size_t t = std::size_t{pass.first_rows()[request]} + i;
      const float* const row = convolved_.data() + t * channels;
      const float* const q = row + std::size_t{head / group} * layers.k_dim;
      float* const result = attended_.data() + t * values + of_head;
      const std::uint32_t stride = decays_of(layers, weights, head, t, decays);
      gated_delta_step(layers.k_dim, layers.v_dim, q, q + keys, row + std::size_t{2} * keys + of_head,
                       decays.data(), stride, sigmoid(gates_[t * weights.ba.n() + head]), state, result);
      rms_norm(result, layers.v_dim, weights.norm.data(), 0, eps, result);
      if (kda) {
        sigmoid_and_mul(output_gates_.data() + t * values + of_head, result, layers.v_dim, result);
      } else {
        silu_and_mul(projected_.data() + t * (channels + values) + channels + of_head, result, layers.v_dim,
                     result);
      }
      const Snapshot& snapshot = snapshots_[request];
      if (snapshot.state != nullptr && i + 1 == snapshot.count) {
        const std::size_t matrix = std::size_t{layers.k_dim} * layers.v_dim;
        std::copy_n(state, matrix, states.temporal(*snapshot.state, index) + head * matrix);
      }
    }
  });
}

}  // namespace tpsim::rank
