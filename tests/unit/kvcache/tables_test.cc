#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kvcache/req_to_token_pool.h"
#include "kvcache/token_runs.h"

namespace tpsim::kvcache {
namespace {

TEST(TokenSequence, IsCanonicalHoweverItIsBuilt) {
  TokenSequence a;
  a.append({10, 5});
  a.append({15, 5});
  a.append({100, 0});
  a.append({7, 1});
  const std::vector<TokenRun> runs = {{10, 10}, {7, 1}};
  EXPECT_EQ(a, TokenSequence(runs));
  EXPECT_EQ(a.size(), 11u);
  a.truncate(10);
  EXPECT_EQ(a.runs().size(), 1u);
  a.truncate(0);
  EXPECT_TRUE(a.empty());
}

TEST(ReqToTokenPool, ReusesTheLowestRowAndRefusesBeyondItsLimit) {
  ReqToTokenPool pool(3);
  EXPECT_EQ(pool.alloc_row(), 0u);
  EXPECT_EQ(pool.alloc_row(), 1u);
  EXPECT_EQ(pool.alloc_row(), 2u);
  EXPECT_EQ(pool.alloc_row(), ReqToTokenPool::kNoRow);
  pool.free_row(2);
  pool.free_row(0);
  EXPECT_EQ(pool.alloc_row(), 0u);
  EXPECT_EQ(pool.alloc_row(), 2u);
}

TEST(ReqToTokenPool, RowsAgreeWithPlainListsOfPages) {
  std::mt19937_64 random(1);
  ReqToTokenPool pool;
  const std::uint32_t row = pool.alloc_row();
  std::vector<std::uint32_t> plain;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 4 == 0) {
      const auto keep = static_cast<std::uint32_t>(random() % (plain.size() + 1));
      pool.truncate(row, keep);
      plain.resize(keep);
    } else {
      const bool next = !plain.empty() && random() % 2 == 0;
      const PageRun run{next ? plain.back() + 1 : static_cast<std::uint32_t>(random() % 1000),
                        static_cast<std::uint32_t>(random() % 5)};
      pool.append(row, run);
      for (std::uint32_t p = 0; p < run.count; ++p) plain.push_back(run.first + p);
    }
    ASSERT_EQ(pool.num_pages(row), plain.size());
    const auto from = static_cast<std::uint32_t>(random() % (plain.size() + 1));
    const auto count = static_cast<std::uint32_t>(random() % (plain.size() - from + 1));
    std::vector<PageRun> out;
    pool.copy_out(row, from, count, out);
    std::vector<std::uint32_t> pages;
    for (const PageRun& run : out) {
      for (std::uint32_t p = 0; p < run.count; ++p) pages.push_back(run.first + p);
    }
    ASSERT_EQ(pages, std::vector<std::uint32_t>(plain.begin() + from, plain.begin() + from + count));
    if (!plain.empty()) {
      ASSERT_EQ(pool.last_page(row), plain.back());
    }
  }
}

}  // namespace
}  // namespace tpsim::kvcache
