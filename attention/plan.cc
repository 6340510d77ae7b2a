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

PlanFeatures of_layer(const LayerShape& layer) {
  return {.kv_heads = double(layer.num_kv_heads),
          .group = double(layer.num_q_heads) / layer.num_kv_heads,
          .head_dim = double(layer.head_dim),
          .window = double(layer.sliding_window),
          .element_bytes = layer.q_bytes + layer.kv_bytes()};
}

double width_of(const LayerShape& layer) { return double(layer.head_dim) + layer.v_head_dim; }

// 1 + 2 + … + n, each at most `most`, for n >= 0.
double sum_up_to(double n, double most) {
  return n <= most ? n * (n + 1) / 2 : most * (most + 1) / 2 + (n - most) * most;
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

DecodeTotals decode_totals(const DecodePlan& plan) {
  if (plan.totals) return *plan.totals;
  DecodeTotals totals;
  totals.requests = plan.items.size();
  for (const DecodeItem& item : plan.items) {
    const std::uint32_t length = item.kv_end - item.kv_begin;
    totals.tokens += length;
    totals.parts += item.splits;
    totals.longest = std::max(totals.longest, length);
    totals.longest_part = std::max(totals.longest_part, item.split_tokens);
    totals.most_parts = std::max(totals.most_parts, item.splits);
  }
  return totals;
}

PlanFeatures plan_features(const DecodeTotals& totals, const LayerShape& layer) {
  PlanFeatures features = of_layer(layer);
  features.requests = static_cast<double>(totals.requests);
  features.tokens = static_cast<double>(totals.tokens) / features.requests;
  features.rows = features.group;
  if (totals.tokens != 0) features.spread = totals.longest / features.tokens;
  return features;
}

PlanFeatures plan_features(const ExtendPlan& plan, const LayerShape& layer) {
  PlanFeatures features = of_layer(layer);
  std::uint64_t tokens = 0;
  std::uint64_t prefix = 0;
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) {
    tokens += item.q_len;
    prefix += item.prefix;
    longest = std::max(longest, item.q_len + item.prefix);
  }
  features.requests = static_cast<double>(plan.items.size());
  features.tokens = static_cast<double>(tokens) / features.requests;
  features.prefix = static_cast<double>(prefix) / features.requests;
  features.rows = features.tokens * features.group;
  features.spread = longest / (features.tokens + features.prefix);
  return features;
}

PlanWork least_work(const DecodeTotals& totals, const LayerShape& layer) {
  const auto tokens = static_cast<double>(totals.tokens);
  const double per_query = layer.num_q_heads * width_of(layer);
  return {2.0 * tokens * per_query, tokens * layer.kv_elements() * layer.kv_bytes() +
                                        static_cast<double>(totals.requests) * per_query * layer.q_bytes};
}

PlanWork least_work(const ExtendPlan& plan, const LayerShape& layer) {
  const double per_query = layer.num_q_heads * width_of(layer);
  const double kv_token_bytes = layer.kv_elements() * layer.kv_bytes();
  PlanWork work;
  for (const ExtendItem& item : plan.items) {
    const double seen = double(item.prefix) + item.q_len;
    const double window = layer.sliding_window != 0 ? layer.sliding_window : seen;
    work.flops += 2.0 * per_query * (sum_up_to(seen, window) - sum_up_to(item.prefix, window));
    work.bytes +=
        item.q_len * per_query * layer.q_bytes + std::min(seen, window + item.q_len) * kv_token_bytes;
  }
  return work;
}

}  // namespace tpsim::attention
