// Attention over split sequences: whatever the split, the softmax over all tokens.
#include "rank/numeric/diffusion/sequence_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "proto/base/error.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/diffusion/seeded_tensor.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kHeads = 8, kDim = 6, kWidth = kHeads * kDim;
// 2 x 5 x 9 tokens: tiles of 4 x 4 x 4 are 1 x 2 x 3, and no number of ranks divides them all.
constexpr attention::GridSize kGrid = {2, 5, 9};
constexpr std::uint32_t kTokens = 90;

std::vector<float> rows(const char* name) { return seeded_tensor(name, 1, std::size_t{kTokens} * kWidth); }

// softmax(q k^T / sqrt(dim)) v in fp64, for each head.
std::vector<double> plain() {
  const std::vector<float> q = rows("q"), k = rows("k"), v = rows("v");
  std::vector<double> out(q.size());
  for (std::uint32_t head = 0; head < kHeads; ++head) {
    for (std::uint32_t a = 0; a < kTokens; ++a) {
      std::vector<double> weights(kTokens);
      double sum = 0;
      for (std::uint32_t b = 0; b < kTokens; ++b) {
        double score = 0;
        for (std::uint32_t i = 0; i < kDim; ++i)
          score += double{q[a * kWidth + head * kDim + i]} * k[b * kWidth + head * kDim + i];
        sum += weights[b] = std::exp(score / std::sqrt(double{kDim}));
      }
      for (std::uint32_t b = 0; b < kTokens; ++b) {
        for (std::uint32_t i = 0; i < kDim; ++i)
          out[a * kWidth + head * kDim + i] += weights[b] / sum * v[b * kWidth + head * kDim + i];
      }
    }
  }
  return out;
}

struct Attended {
  std::vector<float> rows;
  KeptPairs pairs;
};

Attended attend(const SequenceSplit& split, const SelfAttention& attention) {
  LocalCollectives collectives(split.ranks());
  ThreadPool pool(1);
  SequenceRanks ranks(split, attention, collectives, pool);
  SequenceRanks::PerRank q(split.ranks()), k(split.ranks()), v(split.ranks()), out;
  for (std::uint32_t i = 0; i < split.ranks(); ++i) {
    const Share share = ranks.tokens(i, kTokens);
    const auto part = [&](const char* name) {
      const std::vector<float> all = rows(name);
      const auto begin = all.begin() + share.first * kWidth;
      return std::vector<float>(begin, begin + share.count * kWidth);
    };
    q[i] = part("q");
    k[i] = part("k");
    v[i] = part("v");
  }
  ranks.attend({.heads = kHeads, .dim = kDim, .grid = kGrid}, q, k, v, out);
  const auto prompts = ranks.gather(out, {kTokens, kTokens}, kWidth);
  for (const std::vector<float>& prompt : prompts) EXPECT_EQ(prompt, prompts.front());
  return {prompts.front(), ranks.pairs()};
}

double largest_difference(const std::vector<float>& values, const std::vector<double>& wanted) {
  double most = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) most = std::max(most, std::abs(values[i] - wanted[i]));
  return most;
}

SelfAttention of(const char* name, attention::DiffusionParameters parameters = {}) {
  return {.backend = &find_head_backend("--attention-backends", name), .parameters = std::move(parameters)};
}

TEST(SequenceRanks, EverySplitIsTheSoftmaxOverAllTokens) {
  const std::vector<double> wanted = plain();
  for (const std::uint32_t cfg : {1U, 2U}) {
    for (const std::uint32_t ring : {1U, 2U, 3U, 8U}) {
      for (const std::uint32_t ulysses : {1U, 2U, 8U}) {
        SCOPED_TRACE(testing::Message() << cfg << " x " << ring << " x " << ulysses);
        const Attended attended = attend({.cfg = cfg, .ring = ring, .ulysses = ulysses}, of("fa"));
        EXPECT_LT(largest_difference(attended.rows, wanted), 2e-6);
        EXPECT_EQ(attended.pairs.all, std::uint64_t{cfg} * kHeads * kTokens * kTokens);
        EXPECT_EQ(attended.pairs.kept, attended.pairs.all);
      }
    }
  }
}

TEST(SequenceRanks, AddsUpWhatTheShardsOfAPlaceHave) {
  LocalCollectives collectives(6);
  ThreadPool pool(1);
  SequenceRanks ranks({.ulysses = 2, .tp = 3}, of("fa"), collectives, pool);
  // Places need not have as many tokens.
  SequenceRanks::PerRank parts = {{1, 2, 3, 4}, {10, 20, 30, 40}, {100, 200, 300, 400},
                                  {5, 6},       {7, 8},           {9, 1}};
  ranks.reduce(parts, {0.5F, 0});
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parts[i], (std::vector<float>{111.5F, 222, 333.5F, 444}));
    EXPECT_EQ(parts[3 + i], (std::vector<float>{21.5F, 15}));
  }
  EXPECT_EQ(ranks.shard(4), 1U);
  EXPECT_EQ(ranks.tokens(4, 7).first, 4U);
}

TEST(SequenceRanks, RefusesHeadsThatDoNotDivideAndRingsOfSparseBackends) {
  EXPECT_THROW(attend({.ulysses = 3}, of("fa")), UserError);
  EXPECT_THROW(attend({.ring = 2}, of("video_sparse_attn", {{"sparsity", "0.5"}})), UserError);
}

TEST(HeadBackends, SparseOnesAreDenseWhereTheyKeepAllAndLeaveOutWhatTheySay) {
  const std::vector<float> dense = attend({}, of("fa")).rows;
  EXPECT_EQ(attend({.ulysses = 4}, of("video_sparse_attn", {{"sparsity", "0"}})).rows, dense);
  const Attended sparse = attend({}, of("video_sparse_attn", {{"sparsity", "0.5"}}));
  const double kept = static_cast<double>(sparse.pairs.kept) / static_cast<double>(sparse.pairs.all);
  EXPECT_GT(kept, 0.2);  // 3 of 6 tiles, which are not of a size
  EXPECT_LT(kept, 0.9);
  EXPECT_NE(sparse.rows, dense);
  EXPECT_EQ(attend({.ulysses = 2}, of("video_sparse_attn", {{"sparsity", "0.5"}})).rows, sparse.rows);
}

// Int8 steps are a 254th of the range, fp8's an 8th to a 16th of a value: errors of percents, not of tenths.
TEST(HeadBackends, QuantisedOnesRound) {
  const double difference = largest_difference(attend({}, of("sage_attn")).rows, plain());
  EXPECT_GT(difference, 1e-4);
  EXPECT_LT(difference, 0.05);
}

TEST(HeadBackends, OthersAreRefusedByName) {
  EXPECT_THROW(find_head_backend("--attention-backends", "sparse_video_gen_2_attn"), UserError);
}

}  // namespace
}  // namespace tpsim::rank
