// Products of a tile's few rows with matrices that lie as they are, one ascending sum per element. For
// targets that link tpsim_vectorised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/base/lanes.h"

namespace tpsim::attention {

// Floats that may be read after the end of a matrix of small_product.
inline constexpr std::uint32_t kProductSlack = 32;

namespace product_detail {

template <std::uint32_t R>
void tile(const float* x, std::size_t x_stride, const float* w, std::size_t w_stride, std::uint32_t depth,
          std::uint32_t columns, float* out, std::size_t out_stride, bool add) {
  using lanes::kLanes;
  lanes::Vector sums[R][2] = {};
  const std::uint32_t first = std::min(columns, kLanes);
  const std::uint32_t second = columns - first;
  if (add) {
    for (std::uint32_t r = 0; r < R; ++r) {
      sums[r][0] = lanes::load_part(out + r * out_stride, first, 0);
      sums[r][1] = lanes::load_part(out + r * out_stride + first, second, 0);
    }
  }
  for (std::uint32_t i = 0; i < depth; ++i, w += w_stride) {
    const lanes::Vector w0 = lanes::load(w);
    const lanes::Vector w1 = lanes::load(w + kLanes);
    for (std::uint32_t r = 0; r < R; ++r) {
      sums[r][0] += x[r * x_stride + i] * w0;
      sums[r][1] += x[r * x_stride + i] * w1;
    }
  }
  for (std::uint32_t r = 0; r < R; ++r) {
    lanes::store_part(out + r * out_stride, first, sums[r][0]);
    lanes::store_part(out + r * out_stride + first, second, sums[r][1]);
  }
}

}  // namespace product_detail

// out [rows, columns] = (add ? out : 0) + x [rows, depth] w [depth, columns]; rows of each are `…_stride`
// apart.
inline void small_product(const float* x, std::size_t x_stride, std::uint32_t rows, const float* w,
                          std::size_t w_stride, std::uint32_t depth, std::uint32_t columns, float* out,
                          std::size_t out_stride, bool add) {
  constexpr std::uint32_t kRows = 8;
  for (std::uint32_t column = 0; column < columns; column += kProductSlack) {
    const std::uint32_t width = std::min(kProductSlack, columns - column);
    std::uint32_t row = 0;
    for (; row + kRows <= rows; row += kRows)
      product_detail::tile<kRows>(x + row * x_stride, x_stride, w + column, w_stride, depth, width,
                                  out + row * out_stride + column, out_stride, add);
    for (; row + 2 <= rows; row += 2)
      product_detail::tile<2>(x + row * x_stride, x_stride, w + column, w_stride, depth, width,
                              out + row * out_stride + column, out_stride, add);
    if (row < rows)
      product_detail::tile<1>(x + row * x_stride, x_stride, w + column, w_stride, depth, width,
                              out + row * out_stride + column, out_stride, add);
  }
}

}  // namespace tpsim::attention
