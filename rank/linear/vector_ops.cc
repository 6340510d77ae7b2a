#include "rank/linear/vector_ops.h"

#include <Eigen/Core>
#include <cmath>

namespace tpsim::rank {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

Eigen::Index index(std::uint64_t size) { return static_cast<Eigen::Index>(size); }

}  // namespace

void rms_norm(const float* x, std::uint32_t size, const float* weight, float offset, float eps, float* out) {
  const ConstArray in(x, index(size));
  const float mean = in.square().mean();
  const float factor = 1.0F / std::sqrt(mean + eps);
  Array(out, index(size)) = in * factor * (ConstArray(weight, index(size)) + offset);
}

void add(float* x, const float* y, std::uint64_t size) {
  Array(x, index(size)) += ConstArray(y, index(size));
}

void scale(float* x, std::uint64_t size, float factor) { Array(x, index(size)) *= factor; }

void silu_and_mul(const float* gate, const float* up, std::uint32_t size, float* out) {
  const ConstArray g(gate, index(size));
  Array(out, index(size)) = g / (1.0F + (-g).exp()) * ConstArray(up, index(size));
}

void gelu_tanh_and_mul(const float* gate, const float* up, std::uint32_t size, float* out) {
  constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
  const ConstArray g(gate, index(size));
  Array(out, index(size)) =
      0.5F * g * (1.0F + (kRoot * (g + 0.044715F * g.cube())).tanh()) * ConstArray(up, index(size));
}

void gpt_oss_swiglu(const float* gate, const float* up, std::uint32_t size, float* out) {
  constexpr float kLimit = 7.0F;
  constexpr float kAlpha = 1.702F;
  const auto g = ConstArray(gate, index(size)).min(kLimit);
  const auto u = ConstArray(up, index(size)).min(kLimit).max(-kLimit);
  Array(out, index(size)) = g / (1.0F + (-kAlpha * g).exp()) * (u + 1.0F);
}

void soft_cap(float* x, std::uint64_t size, float cap) {
  Array values(x, index(size));
  values = cap * (values / cap).tanh();
}

void softmax(float* x, std::uint32_t size) {
  Array values(x, index(size));
  values = (values - values.maxCoeff()).exp();
  values /= values.sum();
}

}  // namespace tpsim::rank
