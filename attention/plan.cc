#include "attention/plan.h"

#include <algorithm>

namespace tpsim::attention {
namespace {

// sum of floor((a * i + b) / m) for i in [0, n), by the Euclidean algorithm. REQUIRES: m > 0.
std::uint64_t floor_sum(std::uint64_t n, std::uint64_t m, std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  while (n != 0) {
    if (a >= m) {
      sum += n * (n - 1) / 2 * (a / m);
      a %= m;
    }
    if (b >= m) {
      sum += n * (b / m);
      b %= m;
    }
    const std::uint64_t last = a * n + b;
    if (last < m) break;
    n = last / m;
    b = last % m;
    std::swap(m, a);
  }
  return sum;
}

}  // namespace

TileRange tile_range(const ExtendPlan& plan, const ExtendItem& item, std::uint32_t row,
                     std::uint32_t window) {
  const std::uint32_t end = item.prefix + std::min(row + plan.tile_m, item.q_len);
  const std::uint32_t first = item.prefix + row + 1;
  const std::uint32_t begin = window != 0 && first > window ? first - window : 0;
  const std::uint32_t n = plan.tile_n;
  return {begin / n * n, (end + n - 1) / n * n};
}

std::uint64_t tile_tokens(const ExtendPlan& plan, const ExtendItem& item, std::uint32_t window) {
  const std::uint64_t m = plan.tile_m;
  const std::uint64_t n = plan.tile_n;
  const std::uint64_t tiles = (item.q_len + m - 1) / m;
  // All tiles but the last end at prefix + (i + 1) * m.
  std::uint64_t steps = (item.prefix + item.q_len + n - 1) / n;
  if (tiles > 1) steps += floor_sum(tiles - 1, n, m, item.prefix + m + n - 1);
  if (window == 0 || item.prefix + 1 + (tiles - 1) * m <= window) return steps * n;
  // Tile i begins at prefix + 1 + i * m - window, from the first tile on where that is positive.
  const std::uint64_t skip = item.prefix + 1 >= window ? 0 : (window - item.prefix - 1 + m - 1) / m;
  steps -= floor_sum(tiles - skip, n, m, item.prefix + 1 + skip * m - window);
  return steps * n;
}

}  // namespace tpsim::attention
