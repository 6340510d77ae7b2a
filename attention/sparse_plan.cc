#include "attention/sparse_plan.h"

#include <algorithm>

namespace tpsim::attention {

namespace {

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
