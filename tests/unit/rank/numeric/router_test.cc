// Routing against a plain reading of the model reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "rank/numeric/mlp_layer.h"

namespace tpsim::rank {
namespace {

// Which experts, by trying all and counting those before: a slow definition without sorting.
std::vector<bool> best(const std::vector<double>& scores, std::size_t count) {
  std::vector<bool> chosen(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    std::size_t before = 0;
    for (std::size_t j = 0; j < scores.size(); ++j)
      before += scores[j] > scores[i] || (scores[j] == scores[i] && j < i) ? 1 : 0;
    chosen[i] = before < count;
  }
  return chosen;
}

std::vector<double> expected(const MoeConfig& config, const std::vector<float>& logits,
                             const std::vector<float>& correction) {
  const std::size_t n = logits.size();
  std::vector<double> scores(n);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] = config.scoring == ExpertScoring::kSigmoid           ? 1 / (1 + std::exp(-double{logits[i]}))
                : config.scoring == ExpertScoring::kSoftmaxThenTopK ? std::exp(double{logits[i]}) / sum
                                                                    : double{logits[i]};
  }
  std::vector<double> choice = scores;
  for (std::size_t i = 0; i < correction.size(); ++i) choice[i] += correction[i];
  if (config.num_groups > 1) {
    const std::size_t size = n / config.num_groups;
    std::vector<double> groups;
    for (std::size_t g = 0; g < config.num_groups; ++g) {
      std::vector<double> of(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                             choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(of.rbegin(), of.rend());
      groups.push_back(config.group_score_top2 ? of[0] + of[1] : of[0]);
    }
    const std::vector<bool> kept = best(groups, config.topk_groups);
    for (std::size_t i = 0; i < n; ++i)
      if (!kept[i / size]) choice[i] = -1e30;
  }
  const std::vector<bool> chosen = best(choice, config.top_k);
  std::vector<double> weights(n, 0);
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!chosen[i]) continue;
    weights[i] = config.scoring == ExpertScoring::kTopKThenSoftmax   ? std::exp(scores[i])
                 : config.scoring == ExpertScoring::kTopKThenSigmoid ? 1 / (1 + std::exp(-scores[i]))
                                                                     : scores[i];
    total += weights[i];
  }
  const bool divide = config.scoring == ExpertScoring::kTopKThenSoftmax || config.normalize_weights;
  for (double& weight : weights) weight *= config.routed_scaling_factor / (divide ? total : 1);
  return weights;
}

TEST(Router, AgreesWithTheDefinition) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 3000; ++round) {
    MoeConfig config;
    config.scoring = static_cast<ExpertScoring>(random() % 4);
    const bool top_k_first = config.scoring == ExpertScoring::kTopKThenSoftmax ||
                             config.scoring == ExpertScoring::kTopKThenSigmoid;
    const bool grouped = !top_k_first && random() % 2 == 0;
    config.num_groups = grouped ? 4 : 1;
    config.topk_groups = grouped ? 2 : 1;
    config.group_score_top2 = config.scoring == ExpertScoring::kSigmoid;
    config.num_experts = 16;
    config.top_k = static_cast<std::uint32_t>(1 + random() % 6);
    config.normalize_weights = random() % 2 == 0;
    config.routed_scaling_factor = 1.5;
    std::vector<float> logits(16);
    for (float& logit : logits) logit = normal(random);
    std::vector<float> correction;
    if (config.scoring == ExpertScoring::kSigmoid) {
      for (int i = 0; i < 16; ++i) correction.push_back(0.2F * normal(random));
    }
    const std::vector<double> wanted = expected(config, logits, correction);
    std::vector<Routed> out;
    std::vector<float> scores = logits;
    route(config, scores, correction, out);
    ASSERT_EQ(out.size(), config.top_k);
    std::vector<double> given(16, 0);
    for (const Routed& one : out) given[one.expert] = one.weight;
    for (std::size_t i = 0; i < 16; ++i) ASSERT_NEAR(given[i], wanted[i], 1e-5) << round;
  }
}

// A negative correction must not let an expert of a group that lost win.
TEST(Router, ExpertsOfLostGroupsAreNeverChosen) {
  MoeConfig config;
  config.scoring = ExpertScoring::kSigmoid;
  config.group_score_top2 = true;
  config.num_groups = 2;
  config.topk_groups = 1;
  config.num_experts = 4;
  config.top_k = 2;
  std::vector<float> scores = {0, 0, 0, 0};
  const std::vector<float> correction = {-0.9F, -0.9F, -2, -2};
  std::vector<Routed> out;
  route(config, scores, correction, out);
  EXPECT_EQ(out[0].expert, 0U);
  EXPECT_EQ(out[1].expert, 1U);
}

// DeepSeek V4: of the root of softplus; or a table chooses, and scores weigh.
TEST(Router, ATableChoosesWhateverTheScores) {
  MoeConfig config;
  config.scoring = ExpertScoring::kSqrtSoftplus;
  config.normalize_weights = true;
  config.num_experts = 4;
  config.top_k = 2;
  const std::vector<float> logits = {0, 1, -1, 5};
  const auto root = [&](std::size_t i) { return std::sqrt(std::log1p(std::exp(logits[i]))); };
  std::vector<Routed> out;
  std::vector<float> scores = logits;
  route(config, scores, {}, out);
  EXPECT_EQ(out[0].expert, 1U);
  EXPECT_EQ(out[1].expert, 3U);
  EXPECT_NEAR(out[1].weight, root(3) / (root(1) + root(3)), 1e-6);
  scores = logits;
  const std::vector<std::uint32_t> table = {2, 0};
  route(config, scores, {}, out, table);
  EXPECT_EQ(out[0].expert, 0U);
  EXPECT_EQ(out[1].expert, 2U);
  EXPECT_NEAR(out[1].weight, root(2) / (root(0) + root(2)), 1e-6);
}

}  // namespace
}  // namespace tpsim::rank
