// The softmax of some rows over part of their KV tokens, not yet divided. Parts are merged by their
// log-sum-exp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tpsim::attention {

struct SoftmaxPart {
  // The score of a token that a row does not see, and the largest of a row that has seen none.
  static constexpr float kNone = -std::numeric_limits<float>::infinity();

  std::vector<float> largest;  // score of each row
  std::vector<float> sum;      // of exp(score - largest)
  std::vector<float> values;   // [rows, v_dim]: the same, weighted with the values
  std::uint32_t v_dim = 0;

  void clear(std::uint32_t rows, std::uint32_t v_dim);
  // `count` more tokens: `scores` [rows, count], which are overwritten, and `tokens`, whose values are the
  // first v_dim of every `stride` floats, with kProductSlack (small_product.h) after them.
  void add(float* scores, std::uint32_t count, const float* tokens, std::size_t stride);
  // Of the same rows and other tokens.
  void add(const SoftmaxPart& part);
};

}  // namespace tpsim::attention
