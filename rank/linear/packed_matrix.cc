#include "rank/linear/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace tpsim::rank {
namespace {

// A tile of kRows x kPanel running sums fits the 32 vector registers of AVX-512, with what feeds it.
constexpr std::uint32_t kPanel = 32;
constexpr std::uint32_t kRows = 12;
constexpr std::uint32_t kLanes = 16;

// The machine's vectors or several of them: the compiler lowers what it does not have.
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Half = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));
using Bits = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline Vector load(const float* at) {
  Vector v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

inline Vector load(const std::uint16_t* at) {
  Half h;
  std::memcpy(&h, at, sizeof h);
  const Bits bits = __builtin_convertvector(h, Bits) << 16;
  Vector v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

// `R` rows of x, packed as [k][R], against one panel of weights; the sums go to `out` [R][kPanel].
// Each sum is one chain of fused multiply-adds over ascending k.
template <std::uint32_t R, typename Weight>
void tile(const float* x, const Weight* w, std::uint32_t k, float* out) {
  Vector sums[R][2] = {};
  for (std::uint32_t i = 0; i < k; ++i, x += R, w += kPanel) {
    const Vector w0 = load(w);
    const Vector w1 = load(w + kLanes);
    for (std::uint32_t r = 0; r < R; ++r) {
      sums[r][0] += x[r] * w0;
      sums[r][1] += x[r] * w1;
    }
  }
  std::memcpy(out, sums, sizeof sums);
}

template <typename Weight>
void tile_of(std::uint32_t rows, const float* x, const Weight* w, std::uint32_t k, float* out) {
  switch (rows) {
    case 1:
      return tile<1>(x, w, k, out);
    case 2:
      return tile<2>(x, w, k, out);
    case 3:
      return tile<3>(x, w, k, out);
    case 4:
      return tile<4>(x, w, k, out);
    case 5:
      return tile<5>(x, w, k, out);
    case 6:
      return tile<6>(x, w, k, out);
    case 7:
      return tile<7>(x, w, k, out);
    case 8:
      return tile<8>(x, w, k, out);
    case 9:
      return tile<9>(x, w, k, out);
    case 10:
      return tile<10>(x, w, k, out);
    case 11:
      return tile<11>(x, w, k, out);
    default:
      return tile<12>(x, w, k, out);
  }
}

// Rows in blocks of kRows (the last one shorter), each as [k][rows of the block].
void pack_rows(const float* x, std::uint32_t rows, std::uint32_t stride, std::uint32_t k,
               std::vector<float>& out) {
  out.resize(std::size_t{rows} * k);
  float* to = out.data();
  for (std::uint32_t first = 0; first < rows; first += kRows) {
    const std::uint32_t count = std::min(kRows, rows - first);
    const float* const from = x + std::size_t{first} * stride;
    for (std::uint32_t i = 0; i < k; ++i) {
      for (std::uint32_t r = 0; r < count; ++r) *to++ = from[std::size_t{r} * stride + i];
    }
  }
}

struct Product {
  const float* x;  // packed
  std::uint32_t rows, n, k;
  float* y;
  std::uint32_t y_stride;
  const float* bias;
};

template <typename Weight>
void multiply_panel(const Product& p, std::uint32_t panel, const Weight* w) {
  alignas(64) float sums[kRows][kPanel];
  const std::uint32_t first = panel * kPanel;
  const std::uint32_t columns = std::min(kPanel, p.n - first);
  for (std::uint32_t row = 0; row < p.rows; row += kRows) {
    const std::uint32_t count = std::min(kRows, p.rows - row);
    tile_of(count, p.x + std::size_t{row} * p.k, w, p.k, &sums[0][0]);
    for (std::uint32_t r = 0; r < count; ++r) {
      float* const y = p.y + std::size_t{row + r} * p.y_stride + first;
      if (p.bias == nullptr) {
        std::memcpy(y, sums[r], columns * sizeof(float));
      } else {
        for (std::uint32_t c = 0; c < columns; ++c) y[c] = sums[r][c] + p.bias[first + c];
      }
    }
  }
}

}  // namespace

PackedMatrix::PackedMatrix(WeightType type, std::uint32_t n, std::uint32_t k,
                           const std::function<void(std::uint32_t, float*)>& row)
    : type_(type), n_(n), k_(k) {
  const std::size_t panels = (std::size_t{n} + kPanel - 1) / kPanel;
  if (type == WeightType::kBf16) {
    bf16_.assign(panels * k * kPanel, 0);
  } else {
    fp32_.assign(panels * k * kPanel, 0);
  }
  // A panel's rows are read first and then turned, so that both sides are walked in order.
  std::vector<float> rows(std::size_t{kPanel} * k);
  for (std::size_t panel = 0; panel < panels; ++panel) {
    const std::uint32_t first = static_cast<std::uint32_t>(panel) * kPanel;
    const std::uint32_t count = std::min(kPanel, n - first);
    for (std::uint32_t j = 0; j < count; ++j) row(first + j, rows.data() + std::size_t{j} * k);
    for (std::uint32_t i = 0; i < k; ++i) {
      const std::size_t at = (panel * k + i) * kPanel;
      for (std::uint32_t j = 0; j < count; ++j) {
        const float value = rows[std::size_t{j} * k + i];
        if (type == WeightType::kBf16) {
          bf16_[at + j] = to_bf16(value);
        } else {
          fp32_[at + j] = value;
        }
      }
    }
  }
}

void PackedMatrix::row(std::uint32_t output, float* out) const {
  const std::size_t at = std::size_t{output / kPanel} * k_ * kPanel + output % kPanel;
  for (std::uint32_t i = 0; i < k_; ++i) {
    out[i] = type_ == WeightType::kFp32
                 ? fp32_[at + std::size_t{i} * kPanel]
                 : std::bit_cast<float>(std::uint32_t{bf16_[at + std::size_t{i} * kPanel]} << 16);
  }
}

void PackedMatrix::multiply(const float* x, std::uint32_t rows, std::uint32_t x_stride, float* y,
                            std::uint32_t y_stride, const float* bias, ThreadPool& pool) const {
  if (rows == 0 || n_ == 0) return;
  thread_local std::vector<float> packed;
  Product product{x, rows, n_, k_, y, y_stride, bias};
  if (rows > 1) {
    pack_rows(x, rows, x_stride, k_, packed);
    product.x = packed.data();
  }
  const std::uint32_t panels = (n_ + kPanel - 1) / kPanel;
  // Small products are done before a thread wakes up; large ones in a few parts per thread.
  constexpr std::uint64_t kWorthAThread = 1U << 18;  // multiply-adds
  const std::uint64_t work = std::uint64_t{rows} * n_ * k_;
  const std::uint32_t parts =
      work < kWorthAThread ? 1 : std::min<std::uint32_t>(panels, pool.size() == 1 ? 1 : pool.size() * 8);
  pool.parallel_for(parts, [&](std::uint32_t part, std::uint32_t) {
    thread_local std::vector<float> wide;
    const auto begin = static_cast<std::uint32_t>(std::uint64_t{panels} * part / parts);
    const auto end = static_cast<std::uint32_t>(std::uint64_t{panels} * (part + 1) / parts);
    for (std::uint32_t panel = begin; panel < end; ++panel) {
      const std::size_t at = std::size_t{panel} * k_ * kPanel;
      if (type_ == WeightType::kFp32) {
        multiply_panel(product, panel, fp32_.data() + at);
      } else if (rows <= kRows) {
        multiply_panel(product, panel, bf16_.data() + at);
      } else {
        // Widened once for all blocks of rows.
        wide.resize(std::size_t{k_} * kPanel);
        for (std::size_t i = 0; i < wide.size(); i += kLanes) {
          const Vector v = load(bf16_.data() + at + i);
          std::memcpy(wide.data() + i, &v, sizeof v);
        }
        multiply_panel(product, panel, static_cast<const float*>(wide.data()));
      }
    }
  });
}

}  // namespace tpsim::rank
