#include "rank/linear/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "proto/base/number_format.h"

namespace tpsim::rank {
namespace {

// A tile of kRows x kPanel running sums fits the 32 vector registers of AVX-512, with what feeds it.
constexpr std::uint32_t kPanel = 32;
constexpr std::uint32_t kRows = 12;
constexpr std::uint32_t kLanes = 16;
constexpr std::uint32_t kBlock = 1024;  // of k
// Up to so many rows, bf16 weights are widened in the registers of a lower tile; with more, once in memory.
constexpr std::uint32_t kFewRows = 64;
constexpr std::uint32_t kFewRowsHeight = 8;
constexpr std::uint32_t kTilesAtOnce = 32;

// The machine's vectors or several of them: the compiler lowers what it does not have.
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Half = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));
using Bits = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));

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

// `R` rows of x, packed as [k][R], against one panel of weights, into out [R][kPanel], whose rows are
// `stride` apart; `add`: added to the sums there. Each sum is one chain of fused multiply-adds over ascending
// k.
template <std::uint32_t R, typename Weight>
void tile(const float* x, const Weight* w, std::uint32_t k, float* out, std::size_t stride, bool add) {
  Vector sums[R][2] = {};
  if (add) {
    for (std::uint32_t r = 0; r < R; ++r) std::memcpy(sums[r], out + r * stride, sizeof sums[r]);
  }
  for (std::uint32_t i = 0; i < k; ++i, x += R, w += kPanel) {
    const Vector w0 = load(w);
    const Vector w1 = load(w + kLanes);
    for (std::uint32_t r = 0; r < R; ++r) {
      sums[r][0] += x[r] * w0;
      sums[r][1] += x[r] * w1;
    }
  }
  for (std::uint32_t r = 0; r < R; ++r) std::memcpy(out + r * stride, sums[r], sizeof sums[r]);
}

template <typename Weight>
void tile_of(std::uint32_t rows, const float* x, const Weight* w, std::uint32_t k, float* out,
             std::size_t stride, bool add) {
  static constexpr auto kTiles = []<std::uint32_t... I>(std::integer_sequence<std::uint32_t, I...>) {
    return std::array{&tile<I + 1, Weight>...};
  }
  (std::make_integer_sequence<std::uint32_t, kRows>());
  kTiles[rows - 1](x, w, k, out, stride, add);
}

// How a product is cut: rows in tiles of nearly the same height, k in blocks, so that a block of a tile stays
// in the first-level cache and a block of a panel in the second while all tiles pass by.
struct Blocks {
  std::uint32_t rows, k, num_tiles;
  std::uint32_t k_blocks() const { return (k + kBlock - 1) / kBlock; }
  std::uint32_t k_begin(std::uint32_t block) const { return block * kBlock; }
  std::uint32_t k_count(std::uint32_t block) const { return std::min(kBlock, k - block * kBlock); }
  std::uint32_t row(std::uint32_t tile) const {
    return static_cast<std::uint32_t>(std::uint64_t{rows} * tile / num_tiles);
  }
  std::uint32_t row_count(std::uint32_t tile) const { return row(tile + 1) - row(tile); }
  // Where a tile's block begins in the packed rows.
  std::size_t packed(std::uint32_t block, std::uint32_t tile) const {
    return std::size_t{k_begin(block)} * rows + std::size_t{row(tile)} * k_count(block);
  }
};

Blocks blocks_of(std::uint32_t rows, std::uint32_t k) {
  const std::uint32_t height = rows <= kFewRows ? kFewRowsHeight : kRows;
  return {rows, k, (rows + height - 1) / height};
}

// [block of k][tile][k of the block][row of the tile]
void pack_rows(const float* x, std::uint32_t stride, const Blocks& blocks, std::vector<float>& out) {
  out.resize(std::size_t{blocks.rows} * blocks.k);
  float* to = out.data();
  for (std::uint32_t block = 0; block < blocks.k_blocks(); ++block) {
    const std::uint32_t begin = blocks.k_begin(block);
    const std::uint32_t end = begin + blocks.k_count(block);
    for (std::uint32_t tile = 0; tile < blocks.num_tiles; ++tile) {
      const float* const from = x + std::size_t{blocks.row(tile)} * stride;
      const std::uint32_t count = blocks.row_count(tile);
      for (std::uint32_t i = begin; i < end; ++i) {
        for (std::uint32_t r = 0; r < count; ++r) *to++ = from[std::size_t{r} * stride + i];
      }
    }
  }
}

struct Part {
  std::uint32_t panel, block, first_tile, last_tile;
};

struct Product {
  const float* x;  // packed
  Blocks blocks;
  std::uint32_t n;
  float* y;
  std::uint32_t y_stride;
  const float* bias;
};

// Tiles [first_tile, last_tile), one block of k, one panel. y holds the sums so far.
template <typename Weight>
void multiply_block(const Product& p, Part part, const Weight* w) {
  const auto [panel, block, first_tile, last_tile] = part;
  alignas(64) float sums[kRows][kPanel] = {};
  const std::uint32_t first = panel * kPanel;
  const std::uint32_t columns = std::min(kPanel, p.n - first);
  const bool last = block + 1 == p.blocks.k_blocks();
  for (std::uint32_t tile = first_tile; tile < last_tile; ++tile) {
    const std::uint32_t count = p.blocks.row_count(tile);
    float* const y = p.y + std::size_t{p.blocks.row(tile)} * p.y_stride + first;
    const float* const x = p.x + p.blocks.packed(block, tile);
    const std::uint32_t k = p.blocks.k_count(block);
    if (columns == kPanel) {
      tile_of(count, x, w, k, y, p.y_stride, block > 0);
    } else {  // the last panel goes beyond y
      for (std::uint32_t r = 0; r < count && block > 0; ++r)
        std::copy_n(y + std::size_t{r} * p.y_stride, columns, sums[r]);
      tile_of(count, x, w, k, &sums[0][0], kPanel, block > 0);
      for (std::uint32_t r = 0; r < count; ++r)
        std::copy_n(sums[r], columns, y + std::size_t{r} * p.y_stride);
    }
    if (!last || p.bias == nullptr) continue;
    for (std::uint32_t r = 0; r < count; ++r) {
      float* const out = y + std::size_t{r} * p.y_stride;
      for (std::uint32_t c = 0; c < columns; ++c) out[c] += p.bias[first + c];
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
    out[i] = type_ == WeightType::kFp32 ? fp32_[at + std::size_t{i} * kPanel]
                                        : from_bf16(bf16_[at + std::size_t{i} * kPanel]);
  }
}

template <typename Product, typename Part>
void PackedMatrix::multiply_part(const Product& product, const Part& part) const {
  const std::size_t at = (std::size_t{part.panel} * k_ + product.blocks.k_begin(part.block)) * kPanel;
  if (type_ == WeightType::kFp32) {
    multiply_block(product, part, fp32_.data() + at);
  } else if (product.blocks.rows <= kFewRows) {
    multiply_block(product, part, bf16_.data() + at);
  } else {
    alignas(64) thread_local float wide[kBlock * kPanel];
    const std::size_t size = std::size_t{product.blocks.k_count(part.block)} * kPanel;
    for (std::size_t i = 0; i < size; i += kLanes) {
      const Vector v = load(bf16_.data() + at + i);
      std::memcpy(wide + i, &v, sizeof v);
    }
    multiply_block(product, part, static_cast<const float*>(wide));
  }
}

void PackedMatrix::multiply(const float* x, std::uint32_t rows, std::uint32_t x_stride, float* y,
                            std::uint32_t y_stride, const float* bias, ThreadPool& pool) const {
  if (rows == 0 || n_ == 0) return;
  thread_local std::vector<float> packed;
  Product product{x, blocks_of(rows, k_), n_, y, y_stride, bias};
  if (rows > 1) {
    pack_rows(x, x_stride, product.blocks, packed);
    product.x = packed.data();
  }
  const std::uint32_t panels = (n_ + kPanel - 1) / kPanel;
  // Small products are done before a thread wakes up; large ones in a few parts per thread.
  constexpr std::uint64_t kWorthAThread = 1U << 18;  // multiply-adds
  const std::uint64_t work = std::uint64_t{rows} * n_ * k_;
  const std::uint32_t parts =
      work < kWorthAThread ? 1 : std::min<std::uint32_t>(panels, pool.size() == 1 ? 1 : pool.size() * 8);
  pool.parallel_for(parts, [&](std::uint32_t i, std::uint32_t) {
    const auto begin = static_cast<std::uint32_t>(std::uint64_t{panels} * i / parts);
    const auto end = static_cast<std::uint32_t>(std::uint64_t{panels} * (i + 1) / parts);
    // Few rows: the weights are walked in order. Many: a block of rows stays in the cache.
    const std::uint32_t tiles = product.blocks.num_tiles;
    const std::uint32_t k_blocks = product.blocks.k_blocks();
    if (rows <= kFewRows) {
      for (std::uint32_t panel = begin; panel < end; ++panel) {
        for (std::uint32_t block = 0; block < k_blocks; ++block)
          multiply_part(product, Part{panel, block, 0, tiles});
      }
      return;
    }
    for (std::uint32_t tile = 0; tile < tiles; tile += kTilesAtOnce) {
      const std::uint32_t last = std::min(tiles, tile + kTilesAtOnce);
      for (std::uint32_t block = 0; block < k_blocks; ++block) {
        for (std::uint32_t panel = begin; panel < end; ++panel)
          multiply_part(product, Part{panel, block, tile, last});
      }
    }
  });
}

}  // namespace tpsim::rank
