#include "rank/linear/vector_ops.h"

#include <cmath>

#include "proto/base/lanes.h"

namespace tpsim::rank {

using lanes::Vector;

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

void silu_and_mul(const float* gate, const float* up, std::uint32_t size, float* out) {
  lanes::map(
      out, size, [](Vector g, Vector u) { return g / (1.0F + lanes::exp(-g)) * u; }, gate, up);
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

}  // namespace tpsim::rank
