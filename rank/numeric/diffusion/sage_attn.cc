// SageAttention: keys less their mean over the tokens, which no softmax sees; queries and keys in int8 with a
// scale for 128 queries and 64 keys; probabilities and values in fp8 (e4m3), values with a scale for each
// channel, probabilities times 448.
//
// Sources: arXiv 2410.02367 (smoothing, section 4.2), 2411.10958 (fp8 values and probabilities, section 3.3,
// whose two-level sums are fp32 here); blocks as thu-ml/SageAttention's kernels for Hopper take them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "proto/base/number_format.h"
#include "rank/numeric/diffusion/head_attention.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kQueryBlock = 128, kKeyBlock = 64;
constexpr float kLargestInt8 = 127, kLargestE4m3 = 448;

// Rows [count, dim], each block of them rounded to multiples of its largest / 127.
void round_int8(std::vector<float>& rows, std::uint32_t dim, std::uint32_t block) {
  for (std::size_t at = 0; at < rows.size(); at += std::size_t{block} * dim) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end =
        begin + static_cast<std::ptrdiff_t>(std::min(std::size_t{block} * dim, rows.size() - at));
    float largest = 0;
    for (auto x = begin; x != end; ++x) largest = std::max(largest, std::abs(*x));
    const float step = largest / kLargestInt8;
    if (step == 0) continue;
    for (auto x = begin; x != end; ++x) *x = step * std::nearbyint(*x / step);
  }
}

std::vector<float> copied(const HeadRows& from, std::uint32_t dim) {
  std::vector<float> out;
  for (std::uint32_t i = 0; i < from.count; ++i) out.insert(out.end(), from.row(i), from.row(i) + dim);
  return out;
}

void attend_sage(const HeadCall& call, float* out) {
  const std::uint32_t dim = call.dim, keys = call.k.count;
  std::vector<float> q = copied(call.q, dim), k = copied(call.k, dim), v = copied(call.v, dim);
  for (std::uint32_t i = 0; i < dim; ++i) {
    double mean = 0;
    float largest = 0;
    for (std::uint32_t key = 0; key < keys; ++key) {
      mean += k[std::size_t{key} * dim + i] / static_cast<double>(keys);
      largest = std::max(largest, std::abs(v[std::size_t{key} * dim + i]));
    }
    const float step = largest > 0 ? largest / kLargestE4m3 : 1;
    for (std::uint32_t key = 0; key < keys; ++key) {
      k[std::size_t{key} * dim + i] -= static_cast<float>(mean);
      float& value = v[std::size_t{key} * dim + i];
      value = step * from_e4m3(to_e4m3(value / step));
    }
  }
  round_int8(q, dim, kQueryBlock);
  round_int8(k, dim, kKeyBlock);

  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<float> p(keys);
  for (std::uint32_t query = 0; query < call.q.count; ++query) {
    for (std::uint32_t key = 0; key < keys; ++key) {
      p[key] = 0;
      for (std::uint32_t i = 0; i < dim; ++i)
        p[key] += scale * q[std::size_t{query} * dim + i] * k[std::size_t{key} * dim + i];
    }
    const float largest = *std::ranges::max_element(p);
    float sum = 0;
    float* const to = out + std::size_t{query} * dim;
    std::fill_n(to, dim, 0.0F);
    for (std::uint32_t key = 0; key < keys; ++key) {
      const float weight = std::exp(p[key] - largest);
      sum += weight;
      const float rounded = from_e4m3(to_e4m3(weight * kLargestE4m3)) / kLargestE4m3;
      for (std::uint32_t i = 0; i < dim; ++i) to[i] += rounded * v[std::size_t{key} * dim + i];
    }
    for (std::uint32_t i = 0; i < dim; ++i) to[i] /= sum;
  }
}

}  // namespace

extern const HeadBackend kSageHead;
const HeadBackend kSageHead = {.name = "sage_attn", .rounded = attend_sage};

}  // namespace tpsim::rank
