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

// Sum over the item's query tokens of the tokens that the indexer scores for each.
std::uint64_t scored_tokens(const SparseItem& item) {
  const std::uint64_t q = item.q_len;
  return q * item.prefix + q * (q + 1) / 2;
}

// Query tokens of the item that come after more than top_k - 1 others: for them a selection is made.
std::uint32_t selecting_tokens(const SparseItem& item, std::uint32_t top_k) {
  const std::uint64_t length = std::uint64_t{item.prefix} + item.q_len;
  return length <= top_k ? 0
                         : static_cast<std::uint32_t>(std::min<std::uint64_t>(item.q_len, length - top_k));
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

SparseLoad load_of(const SparsePlan& plan) {
  SparseLoad load;
  for (const SparseItem& item : plan.items) {
    const std::uint32_t length = item.prefix + item.q_len;
    const std::uint32_t full = selecting_tokens(item, plan.top_k);
    const auto scored = static_cast<double>(scored_tokens(item));
    const auto below = static_cast<double>(scored_tokens({item.request, item.prefix, item.q_len - full}));
    const double listed = double(full) * plan.top_k + below;
    ++load.requests;
    load.queries += item.q_len;
    load.listed += listed;
    load.distinct += std::min<double>(listed, length);
    load.longest_list = std::max(load.longest_list, std::min(plan.top_k, length));
    load.stored += length;
    load.scored += scored;
    load.searching += full;
    load.searched += scored - below;
    if (full > 0) load.longest_row = std::max(load.longest_row, length);
  }
  load.walked = load.listed;
  if (plan.whole_list && !plan.items.empty()) {
    load.longest_list = plan.top_k;
    load.walked = load.queries * plan.top_k;
  }
  return load;
}

}  // namespace tpsim::attention
