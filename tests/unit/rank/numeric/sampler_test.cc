#include "rank/numeric/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace tpsim::rank {
namespace {

proto::SamplingParams params(double temperature, std::uint32_t top_k, double top_p, std::uint64_t seed = 1) {
  proto::SamplingParams out;
  out.set_temperature(temperature);
  out.set_top_k(top_k);
  out.set_top_p(top_p);
  out.set_seed(seed);
  return out;
}

std::map<std::uint32_t, double> shares(const std::vector<float>& logits, const proto::SamplingParams& how) {
  std::map<std::uint32_t, double> seen;
  constexpr std::uint32_t kDraws = 40000;
  for (std::uint32_t i = 0; i < kDraws; ++i) seen[sample(logits, how, i)] += 1.0 / kDraws;
  return seen;
}

TEST(Sampler, GreedyTakesTheFirstLargestAndNeverNotANumber) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 2, 3}, params(0, 0, 1), 5), 1U);
  EXPECT_EQ(sample(std::vector<float>{std::nanf(""), -5, -4}, params(0, 0, 1), 5), 2U);
  EXPECT_EQ(sample(std::vector<float>{1, 3, 2}, params(0.9, 1, 1), 5), 1U);
}

TEST(Sampler, DrawsByTheSoftmaxOfTheTemperature) {
  const std::vector<float> logits = {0, 1, 2, -1};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit / temperature);
    const auto seen = shares(logits, params(temperature, 0, 1));
    for (std::uint32_t i = 0; i < 4; ++i)
      EXPECT_NEAR(seen.count(i) ? seen.at(i) : 0, std::exp(logits[i] / temperature) / sum, 0.012);
  }
}

TEST(Sampler, TopKThenTopPKeepTheLikeliest) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.2F)};
  auto seen = shares(logits, params(1, 2, 1));
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_NEAR(seen[1], 4.0 / 7, 0.012);
  // A token stays while what comes before it is not more than top_p: 0, 0.4 and 0.7, but not 0.9.
  seen = shares(logits, params(1, 0, 0.75));
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_NEAR(seen[2], 3.0 / 9, 0.012);
  EXPECT_EQ(shares(logits, params(1, 0, 0.3)).size(), 1U);
}

TEST(Sampler, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(50, 0);
  std::uint32_t same = 0;
  for (std::uint32_t position = 0; position < 200; ++position) {
    EXPECT_EQ(sample(logits, params(1, 0, 1, 7), position), sample(logits, params(1, 0, 1, 7), position));
    same +=
        sample(logits, params(1, 0, 1, 7), position) == sample(logits, params(1, 0, 1, 8), position) ? 1 : 0;
  }
  EXPECT_LT(same, 20U);
}

}  // namespace
}  // namespace tpsim::rank
