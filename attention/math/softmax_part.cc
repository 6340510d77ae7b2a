#include "attention/math/softmax_part.h"

#include <algorithm>

#include "attention/math/small_product.h"
#include "proto/base/lanes.h"

namespace tpsim::attention {

using lanes::Vector;

void SoftmaxPart::clear(std::uint32_t rows, std::uint32_t width) {
  v_dim = width;
  largest.assign(rows, kNone);
  sum.assign(rows, 0);
  values.assign(std::size_t{rows} * v_dim, 0);
}

void SoftmaxPart::add(float* scores, std::uint32_t count, const float* tokens, std::size_t stride) {
  const auto rows = static_cast<std::uint32_t>(largest.size());
  for (std::uint32_t r = 0; r < rows; ++r) {
    float* const row = scores + std::size_t{r} * count;
    const float most = std::max(largest[r], lanes::largest(row, count));
    if (most == kNone) {  // nothing seen yet
      std::fill(row, row + count, 0.0F);
      continue;
    }
    lanes::map(
        row, count, [=](Vector v) { return lanes::exp(v - most); }, row);
    const float factor = lanes::exp(largest[r] - most);
    largest[r] = most;
    sum[r] = sum[r] * factor + lanes::sum(row, count);
    float* const out = values.data() + std::size_t{r} * v_dim;
    lanes::map(
        out, v_dim, [=](Vector v) { return v * factor; }, out);
  }
  small_product(scores, count, rows, tokens, stride, count, v_dim, values.data(), v_dim, /*add=*/true);
}

void SoftmaxPart::add(const SoftmaxPart& part) {
  for (std::size_t r = 0; r < largest.size(); ++r) {
    if (part.largest[r] == kNone) continue;
    const float most = std::max(largest[r], part.largest[r]);
    const float mine = lanes::exp(largest[r] - most);
    const float others = lanes::exp(part.largest[r] - most);
    largest[r] = most;
    sum[r] = sum[r] * mine + part.sum[r] * others;
    float* const out = values.data() + r * v_dim;
    lanes::map(
        out, v_dim, [=](Vector a, Vector b) { return a * mine + b * others; }, out,
        part.values.data() + r * v_dim);
  }
}

}  // namespace tpsim::attention
