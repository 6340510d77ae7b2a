// Trees that a draft model grows, against those of SGLang's own functions
// (tests/references/record_draft_trees.py) and against the plain way on random guesses: every node written
// down with its path, the best of them picked by sorting.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "rank/numeric/sampler.h"

namespace tpsim::rank {
namespace {

using Path = std::vector<std::uint32_t>;

std::vector<Guess> random_guesses(std::mt19937& random, std::uint32_t topk) {
  std::vector<float> logits(24);
  for (float& logit : logits) logit = std::normal_distribution<float>(0, 2)(random);
  std::vector<Guess> guesses;
  add_best_guesses(logits, topk, {}, guesses);
  return guesses;
}

TEST(DraftBeams, TreesAreTheBestPathsOfAllThatWereGuessed) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::uint32_t topk = 1 + random() % 5;
    const std::uint32_t steps = 1 + random() % 5;
    const std::uint32_t most = topk + (steps - 1) * topk * topk + 1;
    const std::uint32_t count = std::min<std::uint32_t>(2 + random() % 16, most);
    using Scored = std::pair<float, Path>;
    const auto better = [](const Scored& a, const Scored& b) { return a.first > b.first; };
    std::vector<Guess> guesses = random_guesses(random, topk);
    std::vector<Scored> all, leaves;
    for (const Guess& guess : guesses) leaves.push_back({guess.probability, {guess.token}});
    all = leaves;
    DraftBeams beams(guesses);
    for (std::uint32_t step = 1; step < steps; ++step) {
      std::vector<Scored> grown;
      guesses.clear();
      for (const Scored& leaf : leaves) {
        for (const Guess& guess : random_guesses(random, topk)) {
          guesses.push_back(guess);
          grown.push_back({leaf.first * guess.probability, leaf.second});
          grown.back().second.push_back(guess.token);
        }
      }
      const std::vector<Scored> before = leaves;
      all.insert(all.end(), grown.begin(), grown.end());
      std::stable_sort(grown.begin(), grown.end(), better);
      leaves.assign(grown.begin(), grown.begin() + topk);
      beams.grow(guesses);
      ASSERT_EQ(beams.leaves().size(), topk);
      for (std::uint32_t i = 0; i < topk; ++i) {
        Path path = before[beams.leaves()[i].parent].second;
        path.push_back(beams.leaves()[i].token);
        ASSERT_EQ(path, leaves[i].second);
      }
    }
    std::stable_sort(all.begin(), all.end(), better);
    std::vector<Path> wanted, paths = {{}};
    for (std::uint32_t i = 0; i + 1 < count; ++i) wanted.push_back(all[i].second);
    const DraftTree tree = beams.tree(7, count);
    ASSERT_EQ(tree.size(), count);
    EXPECT_EQ(tree.tokens[0], 7u);
    for (std::uint32_t node = 1; node < count; ++node) {
      ASSERT_LT(tree.parents[node], node);
      paths.push_back(paths[tree.parents[node]]);
      paths.back().push_back(tree.tokens[node]);
    }
    paths.erase(paths.begin());
    std::sort(wanted.begin(), wanted.end());
    std::sort(paths.begin(), paths.end());
    ASSERT_EQ(paths, wanted);
  }
}

TEST(DraftBeams, TreesAreThoseOfSGLangsFunctions) {
  std::ifstream file(std::string(TPSIM_MODELS) + "/../sglang/draft_trees.json");
  for (const nlohmann::json& wanted : nlohmann::json::parse(file)) {
    std::vector<std::vector<Guess>> guesses;
    for (const nlohmann::json& step : wanted.at("guesses")) {
      guesses.emplace_back();
      for (const nlohmann::json& row : step) {
        for (const nlohmann::json& guess : row) guesses.back().push_back({guess.at(0), guess.at(1)});
      }
    }
    DraftBeams beams(guesses.front());
    for (std::size_t step = 0; step < guesses.size(); ++step) {
      if (step > 0) beams.grow(guesses[step]);
      const nlohmann::json& leaves = wanted.at("leaves").at(step);
      ASSERT_EQ(beams.leaves().size(), leaves.size());
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_EQ(beams.leaves()[i].token, leaves[i].at(0).get<std::uint32_t>());
        EXPECT_EQ(beams.leaves()[i].parent, leaves[i].at(1).get<std::uint32_t>());
      }
    }
    const DraftTree tree = beams.tree(99, wanted.at("num_draft_tokens"));
    std::vector<std::uint32_t> tokens = {99}, parents = {0};
    for (const std::uint32_t token : wanted.at("tokens")) tokens.push_back(token);
    for (const std::uint32_t parent : wanted.at("parents")) parents.push_back(parent);
    EXPECT_EQ(tree.tokens, tokens);
    EXPECT_EQ(tree.parents, parents);
  }
}

TEST(DraftBeams, OneGuessIsAChain) {
  DraftBeams beams(std::vector<Guess>{{5, 1.0F}});
  beams.grow(std::vector<Guess>{{6, 1.0F}});  // as probable as its parent
  beams.grow(std::vector<Guess>{{7, 0.5F}});
  const DraftTree tree = beams.tree(4, 4);
  EXPECT_EQ(tree.tokens, (std::vector<std::uint32_t>{4, 5, 6, 7}));
  EXPECT_EQ(tree.parents, (std::vector<std::uint32_t>{0, 0, 1, 2}));
}

TEST(DraftBeams, GuessesAreProbabilitiesOfTheTargetsTokens) {
  const std::vector<float> logits = {0, std::log(2.0F), NAN, std::log(5.0F)};
  const std::vector<std::uint32_t> token_of = {10, 20, 30, 40};
  std::vector<Guess> guesses;
  add_best_guesses(logits, 3, token_of, guesses);
  ASSERT_EQ(guesses.size(), 3u);
  EXPECT_EQ(guesses[0].token, 40u);
  EXPECT_NEAR(guesses[0].probability, 0.625, 1e-6);
  EXPECT_EQ(guesses[1].token, 20u);
  EXPECT_NEAR(guesses[1].probability, 0.25, 1e-6);
  EXPECT_EQ(guesses[2].token, 10u);
  guesses.clear();
  add_best_guesses(std::vector<float>{1, 1, 1}, 2, {}, guesses);  // ties: the lowest
  EXPECT_EQ(guesses[0].token, 0u);
  EXPECT_EQ(guesses[1].token, 1u);
}

}  // namespace
}  // namespace tpsim::rank
