// How many tokens a speculative step keeps, and finds room for.
#include "scheduler/speculation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tpsim::scheduler {
namespace {

TEST(AcceptLengths, AChainIsAcceptedUpToTheFirstWrongGuess) {
  const AcceptLengths lengths = AcceptLengths::from_rates(std::vector{0.8, 0.5}, 3, 1, 4);
  EXPECT_EQ(lengths.longest(), 4u);
  // 1 + 0.8 + 0.8 x 0.5 + 0.8 x 0.5 x 0.5: the last rate goes on.
  EXPECT_NEAR(lengths.mean(), 2.4, 1e-12);
}

TEST(AcceptLengths, CertainDraftsAreAllKeptAndImpossibleOnesNever) {
  EXPECT_EQ(AcceptLengths::from_rates(std::vector{1.0}, 5, 1, 6).draw(1, 2, 3), 6u);
  EXPECT_EQ(AcceptLengths::from_rates(std::vector{0.0}, 5, 4, 8).draw(1, 2, 3), 1u);
}

// Plays the model that from_rates() describes: the target's token is guess r with rate (1 - rate)^r.
double played_mean(double rate, std::uint32_t steps, std::uint32_t topk, std::uint32_t draft_tokens) {
  struct Node {
    int parent;
    std::uint32_t guess;
    std::uint32_t depth;
    double probability;
  };
  std::vector<Node> nodes;
  std::vector<int> leaves = {-1};
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::vector<int> grown;
    for (const int leaf : leaves) {
      const double base = leaf < 0 ? 1 : nodes[static_cast<std::size_t>(leaf)].probability;
      for (std::uint32_t guess = 0; guess < topk; ++guess) {
        nodes.push_back({leaf, guess, step + 1, base * rate * std::pow(1 - rate, guess)});
        grown.push_back(static_cast<int>(nodes.size()) - 1);
      }
    }
    std::stable_sort(grown.begin(), grown.end(), [&](int a, int b) {
      return nodes[static_cast<std::size_t>(a)].probability > nodes[static_cast<std::size_t>(b)].probability;
    });
    grown.resize(std::min<std::size_t>(grown.size(), topk));
    leaves = grown;
  }
  std::vector<int> order(nodes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return nodes[static_cast<std::size_t>(a)].probability > nodes[static_cast<std::size_t>(b)].probability;
  });
  std::vector<bool> verified(nodes.size(), false);
  for (std::size_t i = 0; i < order.size() && i + 1 < draft_tokens; ++i)
    verified[static_cast<std::size_t>(order[i])] = true;

  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> coin(0, 1);
  constexpr int kGames = 200000;
  double kept = 0;
  for (int game = 0; game < kGames; ++game) {
    int at = -1;
    std::uint32_t length = 1;
    while (length <= steps) {
      std::uint32_t token = 0;  // which guess the target's own token is
      while (token < topk && coin(random) >= rate) ++token;
      int next = -1;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (verified[i] && nodes[i].parent == at && nodes[i].guess == token) next = static_cast<int>(i);
      }
      if (next < 0) break;
      at = next;
      ++length;
    }
    kept += length;
  }
  return kept / kGames;
}

TEST(AcceptLengths, TreesKeepWhatAWalkDownThemKeeps) {
  struct Case {
    double rate;
    std::uint32_t steps, topk, draft_tokens;
  };
  for (const Case& c : {Case{0.6, 3, 4, 8}, {0.8, 5, 2, 8}, {0.3, 2, 3, 5}, {0.7, 4, 1, 5}}) {
    const AcceptLengths lengths =
        AcceptLengths::from_rates(std::vector{c.rate}, c.steps, c.topk, c.draft_tokens);
    EXPECT_NEAR(lengths.mean(), played_mean(c.rate, c.steps, c.topk, c.draft_tokens), 0.015);
  }
}

TEST(AcceptanceByStep, ADistributionHoldsUntilTheNext) {
  EXPECT_FALSE(AcceptanceByStep().known());
  AcceptanceByStep ramp;
  ramp.from(0, AcceptLengths(std::vector<double>{1}));
  ramp.from(3, AcceptLengths(std::vector<double>{0, 0, 1}));
  ramp.from(7, AcceptLengths(std::vector<double>{0, 0, 0, 0, 1}));
  for (std::uint32_t step = 0; step < 12; ++step)
    EXPECT_EQ(ramp.at(step).draw(1, 2, step), step < 3 ? 1u : step < 7 ? 3u : 5u) << step;
  const AcceptanceByStep constant = AcceptLengths(std::vector<double>{0, 1});
  EXPECT_EQ(constant.at(1000).draw(3, 4, 1000), 2u);
}

TEST(AcceptLengths, DrawsFollowTheDistributionAndDependOnNothingElse) {
  const AcceptLengths lengths(std::vector<double>{3, 0, 5, 2});
  std::vector<double> seen(5, 0);
  constexpr std::uint32_t kDraws = 200000;
  for (std::uint32_t i = 0; i < kDraws; ++i) seen[lengths.draw(1, i / 100, i % 100)] += 1.0 / kDraws;
  EXPECT_NEAR(seen[1], 0.3, 0.01);
  EXPECT_EQ(seen[2], 0);
  EXPECT_NEAR(seen[3], 0.5, 0.01);
  EXPECT_NEAR(seen[4], 0.2, 0.01);
  EXPECT_EQ(lengths.draw(1, 5, 6), lengths.draw(1, 5, 6));
  EXPECT_NEAR(lengths.mean(), 2.6, 1e-12);
}

// By hand from get_alloc_len_per_decode of SGLang 0.5.23 and new_tokens_required_next_decode of 0.5.12.
TEST(Speculation, AStepFindsRoomForWhatSglangReserves) {
  SpeculationConfig eagle{
      .algorithm = SpeculativeAlgorithm::kEagle, .num_steps = 5, .topk = 4, .num_draft_tokens = 8};
  EXPECT_EQ(eagle.alloc_len_per_decode(1), 20u);
  EXPECT_EQ(eagle.alloc_len_per_decode(64), 2u * 64 * 4);  // 63 + 5 tokens of a branch are two pages
  EXPECT_EQ(eagle.tokens_of_step_v1(1), 20u);
  EXPECT_EQ(eagle.tokens_of_step_v1(16), 32u * 4);
  const SpeculationConfig chain{
      .algorithm = SpeculativeAlgorithm::kEagle3, .num_steps = 3, .topk = 1, .num_draft_tokens = 4};
  EXPECT_EQ(chain.alloc_len_per_decode(64), 4u);
  EXPECT_EQ(chain.tokens_of_step_v1(64), 64u);
  const SpeculationConfig ngram{
      .algorithm = SpeculativeAlgorithm::kNgram, .num_steps = 1, .topk = 10, .num_draft_tokens = 12};
  EXPECT_EQ(ngram.alloc_len_per_decode(64), 12u);
}

}  // namespace
}  // namespace tpsim::scheduler
