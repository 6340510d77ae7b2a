#include "attention/plan_features.h"

#include <algorithm>

namespace tpsim::attention {
namespace {

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
