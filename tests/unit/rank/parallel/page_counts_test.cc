#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "rank/parallel/rank_state.h"

namespace tpsim::rank {
namespace {

// Random runs over few pages, so that counts go far beyond one byte and back, against plain counters.
TEST(PageCounts, AreThoseOfPlainCounters) {
  constexpr std::uint32_t kPages = 300;
  std::mt19937_64 random(5);
  for (const std::size_t most : {50U, 3000U}) {  // runs held at a time
    PageCounts counts(kPages);
    std::vector<std::uint32_t> plain(kPages, 0);
    std::vector<kvcache::PageRun> held;
    std::uint32_t highest = 0;
    for (int step = 0; step < 20'000; ++step) {
      const bool grows = held.empty() || (held.size() < most && random() % (step < 10'000 ? 8 : 3) != 0);
      std::uint32_t expected = 0;
      if (grows) {
        const auto first = static_cast<std::uint32_t>(random() % kPages);
        const auto count = static_cast<std::uint32_t>(1 + random() % (kPages - first));
        held.push_back({first, count});
        for (std::uint32_t page = first; page < first + count; ++page) {
          expected += plain[page] == 0 ? 1 : 0;
          highest = std::max(highest, ++plain[page]);
        }
        ASSERT_EQ(counts.add(held.back()), expected);
        continue;
      }
      std::swap(held[random() % held.size()], held.back());
      // A row that is cut gives back a part of what was counted at once.
      if (const kvcache::PageRun run = held.back(); run.count > 1 && random() % 2 == 0) {
        const auto kept = static_cast<std::uint32_t>(1 + random() % (run.count - 1));
        held.back().count = kept;
        held.push_back({run.first + kept, run.count - kept});
      }
      for (std::uint32_t page = held.back().first; page < held.back().first + held.back().count; ++page)
        expected += --plain[page] == 0 ? 1 : 0;
      ASSERT_EQ(counts.remove(held.back()), expected);
      held.pop_back();
    }
    EXPECT_EQ(highest > 512, most > 1000) << highest;
    for (; !held.empty(); held.pop_back()) {
      std::uint32_t expected = 0;
      for (std::uint32_t page = held.back().first; page < held.back().first + held.back().count; ++page)
        expected += --plain[page] == 0 ? 1 : 0;
      ASSERT_EQ(counts.remove(held.back()), expected);
    }
  }
}

TEST(PageCounts, CountLongRuns) {
  PageCounts counts(10'000);
  EXPECT_EQ(counts.add({1, 9998}), 9998U);
  EXPECT_EQ(counts.add({0, 10'000}), 2U);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(counts.add({3, 9990}), 0U);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(counts.remove({3, 9990}), 0U);
  EXPECT_EQ(counts.remove({0, 10'000}), 2U);
  EXPECT_EQ(counts.remove({1, 9998}), 9998U);
}

TEST(PageCounts, WhatWasCountedInPartsGoesAtOnce) {
  PageCounts counts(1000);
  EXPECT_EQ(counts.add({10, 300}), 300U);
  EXPECT_EQ(counts.add({310, 1}), 1U);
  EXPECT_EQ(counts.add({311, 500}), 500U);
  EXPECT_EQ(counts.add({64, 64}), 0U);
  EXPECT_EQ(counts.remove({10, 801}), 737U);
  EXPECT_EQ(counts.remove({64, 63}), 63U);
  EXPECT_EQ(counts.remove({127, 1}), 1U);
  EXPECT_EQ(counts.add({0, 1000}), 1000U);
}

TEST(PageCounts, HoldAsMuchAsATableOfAllRequests) {
  PageCounts counts(4);
  EXPECT_EQ(counts.add({0, 4}), 4U);
  for (int i = 1; i < 65535; ++i) ASSERT_EQ(counts.add({1, 2}), 0U);
  for (int i = 1; i < 65535; ++i) ASSERT_EQ(counts.remove({1, 2}), 0U);
  EXPECT_EQ(counts.remove({0, 4}), 4U);
}

}  // namespace
}  // namespace tpsim::rank
