#include "rank/numeric/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "proto/base/random.h"

namespace tpsim::rank {
namespace {

std::uint64_t mix(std::uint64_t x) { return mix64(x + kGoldenGamma); }

// Uniform in [0, 1), of seed and position alone.
double draw(std::uint64_t seed, std::uint32_t position) { return unit_interval(mix(mix(seed) ^ position)); }

// The first largest logit; not-a-number never wins.
std::uint32_t greedy(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[best])) best = i;
  }
  return static_cast<std::uint32_t>(best);
}

}  // namespace

// As SGLang's top_k_top_p_min_p_sampling_from_probs_torch: probabilities in descending order; top-p keeps a
// token while what comes before it is not more than top_p; top-k keeps the first k; then they add up to 1
// again.
std::uint32_t sample(std::span<const float> logits, const proto::SamplingParams& params,
                     std::uint32_t position) {
  if (params.temperature() <= 0 || params.top_k() == 1) return greedy(logits);
  const float largest = logits[greedy(logits)];
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto weight = [&](std::uint32_t id) {
    const double w = std::exp((double{logits[id]} - double{largest}) / params.temperature());
    return std::isnan(w) ? 0.0 : w;
  };
  double total = 0;
  for (const std::uint32_t id : order) total += weight(id);
  if (!(total > 0) || !std::isfinite(total)) return greedy(logits);
  const auto likelier = [&](std::uint32_t a, std::uint32_t b) {
    const double wa = weight(a);
    const double wb = weight(b);
    return wa != wb ? wa > wb : a < b;
  };
  std::size_t kept = order.size();
  if (params.top_k() > 0 && params.top_k() < kept) {
    kept = params.top_k();
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept - 1), order.end(),
                     likelier);
    order.resize(kept);
  }
  std::sort(order.begin(), order.end(), likelier);
  const bool cut = params.top_p() > 0 && params.top_p() < 1;
  double mass = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (cut && mass > params.top_p() * total) kept = i;
    if (i < kept) mass += weight(order[i]);
  }
  double left = draw(params.seed(), position) * mass;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(order[i]);
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace tpsim::rank
