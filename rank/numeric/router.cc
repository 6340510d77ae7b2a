#include "rank/numeric/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

// The `count` largest of `scores`, in that order.
std::vector<std::uint32_t> largest(std::span<const float> scores, std::uint32_t count) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  order.resize(count);
  return order;
}

// Experts outside the best groups are out, however low the others' corrected scores.
void limit_to_groups(const MoeConfig& config, std::vector<float>& choice) {
  if (config.num_groups <= 1 || config.topk_groups >= config.num_groups) return;
  const std::size_t size = choice.size() / config.num_groups;
  std::vector<float> groups;
  for (std::uint32_t g = 0; g < config.num_groups; ++g) {
    const std::span<const float> of(choice.data() + g * size, size);
    const std::vector<std::uint32_t> best = largest(of, config.group_score_top2 ? 2 : 1);
    float score = 0;
    for (const std::uint32_t expert : best) score += of[expert];
    groups.push_back(score);
  }
  std::vector<bool> kept(config.num_groups, false);
  for (const std::uint32_t g : largest(groups, config.topk_groups)) kept[g] = true;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (!kept[i / size]) choice[i] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

void route(const MoeConfig& config, std::span<float> scores, std::span<const float> correction,
           std::vector<Routed>& out) {
  const auto size = static_cast<std::uint32_t>(scores.size());
  if (config.scoring == ExpertScoring::kSoftmaxThenTopK) {
    softmax(scores.data(), size);
  } else if (config.scoring == ExpertScoring::kSigmoid) {
    for (float& score : scores) score = 1.0F / (1.0F + std::exp(-score));
  }
  std::vector<float> choice(scores.begin(), scores.end());
  for (std::size_t i = 0; i < correction.size(); ++i) choice[i] += correction[i];
  limit_to_groups(config, choice);
  std::vector<std::uint32_t> chosen = largest(choice, config.top_k);
  std::vector<float> weights;
  weights.reserve(chosen.size());
  for (const std::uint32_t expert : chosen) weights.push_back(scores[expert]);
  if (config.scoring == ExpertScoring::kTopKThenSoftmax) softmax(weights.data(), config.top_k);
  if (config.scoring == ExpertScoring::kTopKThenSigmoid) {
    for (float& weight : weights) weight = 1.0F / (1.0F + std::exp(-weight));
  }
  if (config.normalize_weights) {
    const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F) + 1e-20F;
    for (float& weight : weights) weight /= sum;
  }
  out.clear();
  for (std::size_t i = 0; i < chosen.size(); ++i)
    out.push_back({chosen[i], weights[i] * static_cast<float>(config.routed_scaling_factor)});
  std::sort(out.begin(), out.end(), [](const Routed& a, const Routed& b) { return a.expert < b.expert; });
}

}  // namespace tpsim::rank
