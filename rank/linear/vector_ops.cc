#include "rank/linear/vector_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "proto/base/lanes.h"

namespace tpsim::rank {
namespace {

using lanes::Vector;

constexpr std::uint32_t kMostValues = 1024;

}  // namespace

void rms_norm(const float* x, std::uint32_t size, const float* weight, float offset, float eps, float* out) {
  const float mean = lanes::dot(x, x, size) / static_cast<float>(size);
  const float factor = 1.0F / std::sqrt(mean + eps);
  lanes::map(
      out, size, [=](Vector v, Vector w) { return v * factor * (w + offset); }, x, weight);
}

void layer_norm(const float* x, std::uint32_t size, const float* weight, const float* bias, float eps,
                float* out) {
  const float mean = lanes::sum(x, size) / static_cast<float>(size);
  float variance = 0;
  for (std::uint32_t i = 0; i < size; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0F / std::sqrt(variance / static_cast<float>(size) + eps);
  if (bias == nullptr) {
    lanes::map(
        out, size, [=](Vector v, Vector w) { return (v - mean) * factor * w; }, x, weight);
    return;
  }
  lanes::map(
      out, size, [=](Vector v, Vector w, Vector b) { return (v - mean) * factor * w + b; }, x, weight, bias);
}

void add(float* x, const float* y, std::uint64_t size) {
  lanes::map(
      x, size, [](Vector a, Vector b) { return a + b; }, x, y);
}

float dot(const float* x, const float* y, std::uint64_t size) { return lanes::dot(x, y, size); }

void scale(float* x, std::uint64_t size, float factor) {
  lanes::map(
      x, size, [=](Vector v) { return v * factor; }, x);
}

float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

void silu_and_mul(const float* gate, const float* up, std::uint32_t size, float* out) {
  lanes::map(
      out, size, [](Vector g, Vector u) { return g / (1.0F + lanes::exp(-g)) * u; }, gate, up);
}

void limited_silu_and_mul(const float* gate, const float* up, std::uint32_t size, float limit, float* out) {
  lanes::map(
      out, size,
      [=](Vector g, Vector u) {
        g = lanes::smaller(lanes::splat(limit), g / (1.0F + lanes::exp(-g)));
        return g * lanes::larger(lanes::splat(-limit), lanes::smaller(lanes::splat(limit), u));
      },
      gate, up);
}

void sigmoid_and_mul(const float* gate, const float* x, std::uint64_t size, float* out) {
  lanes::map(
      out, size, [](Vector g, Vector v) { return v / (1.0F + lanes::exp(-g)); }, gate, x);
}

void gelu_tanh_and_mul(const float* gate, const float* up, std::uint32_t size, float* out) {
  constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
  lanes::map(
      out, size,
      [](Vector g, Vector u) {
        return 0.5F * g * (1.0F + lanes::tanh(kRoot * (g + 0.044715F * (g * g * g)))) * u;
      },
      gate, up);
}

void gpt_oss_swiglu(const float* gate, const float* up, std::uint32_t size, float* out) {
  constexpr float kLimit = 7.0F;
  constexpr float kAlpha = 1.702F;
  lanes::map(
      out, size,
      [](Vector g, Vector u) {
        g = lanes::smaller(lanes::splat(kLimit), g);
        u = lanes::larger(lanes::splat(-kLimit), lanes::smaller(lanes::splat(kLimit), u));
        return g / (1.0F + lanes::exp(-kAlpha * g)) * (u + 1.0F);
      },
      gate, up);
}

void soft_cap(float* x, std::uint64_t size, float cap) {
  lanes::map(
      x, size, [=](Vector v) { return cap * lanes::tanh(v / cap); }, x);
}

void softmax(float* x, std::uint32_t size) {
  const float largest = lanes::largest(x, size);
  lanes::map(
      x, size, [=](Vector v) { return lanes::exp(v - largest); }, x);
  const float sum = lanes::sum(x, size);
  lanes::map(
      x, size, [=](Vector v) { return v / sum; }, x);
}

void convolve(std::span<const float* const> inputs, std::uint64_t channels, const float* weights, bool silu,
              float* out) {
  const std::size_t kernel = inputs.size();
  for (std::uint64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (std::size_t i = 0; i < kernel; ++i) sum += inputs[i][c] * weights[c * kernel + i];
    out[c] = sum;
  }
  if (!silu) return;
  lanes::map(
      out, channels, [](Vector x) { return x / (1.0F + lanes::exp(-x)); }, out);
}

void gated_delta_step(std::uint32_t k_dim, std::uint32_t v_dim, const float* q, const float* k,
                      const float* v, const float* decays, std::uint32_t decay_stride, float strength,
                      float* state, float* out) {
  constexpr float kEpsilon = 1e-6F;  // of l2norm, added to the square
  const float of_k = 1.0F / std::sqrt(lanes::dot(k, k, k_dim) + kEpsilon);
  const float of_q =
      1.0F / std::sqrt(lanes::dot(q, q, k_dim) + kEpsilon) / std::sqrt(static_cast<float>(k_dim));
  // `out` holds S^T k, then what is written, then S^T q.
  std::fill(out, out + v_dim, 0.0F);
  for (std::uint32_t i = 0; i < k_dim; ++i) {
    float* const row = state + std::size_t{i} * v_dim;
    const float key = k[i] * of_k;
    const float decay = decays[std::size_t{i} * decay_stride];
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
