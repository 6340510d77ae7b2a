#include "rank/linear/gated_delta_rule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "proto/base/lanes.h"

namespace tpsim::rank {
namespace {

using lanes::Vector;

constexpr std::uint32_t kMostValues = 1024;

}  // namespace

void convolve(std::span<const float* const> inputs, std::uint64_t channels, const float* weights,
              float* out) {
  const std::size_t kernel = inputs.size();
  for (std::uint64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (std::size_t i = 0; i < kernel; ++i) sum += inputs[i][c] * weights[c * kernel + i];
    out[c] = sum;
  }
  lanes::map(
      out, channels, [](Vector x) { return x / (1.0F + lanes::exp(-x)); }, out);
}

void gated_delta_step(std::uint32_t k_dim, std::uint32_t v_dim, const float* q, const float* k,
                      const float* v, float decay, float strength, float* state, float* out) {
  constexpr float kEpsilon = 1e-6F;  // of l2norm, added to the square
  const float of_k = 1.0F / std::sqrt(lanes::dot(k, k, k_dim) + kEpsilon);
  const float of_q =
      1.0F / std::sqrt(lanes::dot(q, q, k_dim) + kEpsilon) / std::sqrt(static_cast<float>(k_dim));
  // `out` holds S^T k, then what is written, then S^T q.
  std::fill(out, out + v_dim, 0.0F);
  for (std::uint32_t i = 0; i < k_dim; ++i) {
    float* const row = state + std::size_t{i} * v_dim;
    const float key = k[i] * of_k;
    lanes::map(
        row, v_dim, [=](Vector s) { return s * decay; }, row);
    lanes::map(
        out, v_dim, [=](Vector o, Vector s) { return o + s * key; }, out, row);
  }
  float written[kMostValues];
  lanes::map(
      written, v_dim, [=](Vector wanted, Vector has) { return (wanted - has) * strength; }, v, out);
  std::fill(out, out + v_dim, 0.0F);
  for (std::uint32_t i = 0; i < k_dim; ++i) {
    float* const row = state + std::size_t{i} * v_dim;
    const float key = k[i] * of_k;
    const float query = q[i] * of_q;
    lanes::map(
        row, v_dim, [=](Vector s, Vector w) { return s + w * key; }, row, written);
    lanes::map(
        out, v_dim, [=](Vector o, Vector s) { return o + s * query; }, out, row);
  }
}

}  // namespace tpsim::rank
