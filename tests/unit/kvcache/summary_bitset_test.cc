#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kvcache/pools/page_allocator.h"

namespace tpsim::kvcache {
namespace {

TEST(SummaryBitset, IsAPlainSet) {
  std::mt19937_64 random(1);
  for (const std::uint32_t size : {1U, 63U, 64U, 65U, 5000U, 300'000U}) {
    SummaryBitset set(size);
    std::vector<bool> plain(size, true);
    // Most of the work at the beginning, so that the rest is untouched for a while.
    for (int i = 0; i < 4000; ++i) {
      const auto reach = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(size / (1 + 4000 / (i + 1))));
      const auto member = static_cast<std::uint32_t>(random() % std::min(reach, size));
      const bool in = random() % 4 == 0;
      plain[member] = in;
      in ? set.set(member) : set.reset(member);
      const auto from = static_cast<std::uint32_t>(random() % size);
      const auto expected = std::find(plain.begin() + from, plain.end(), true);
      ASSERT_EQ(set.find(from), expected == plain.end()
                                    ? SummaryBitset::kNone
                                    : static_cast<std::uint32_t>(expected - plain.begin()))
          << size << " " << i;
      ASSERT_EQ(set.test(from), plain[from]);
    }
    EXPECT_EQ(set.find(size), SummaryBitset::kNone);
    for (std::uint32_t i = 0; i < size; ++i) set.reset(i);
    EXPECT_EQ(set.find(0), SummaryBitset::kNone);
  }
}

TEST(SummaryBitset, TheLastWordEndsWithTheSet) {
  SummaryBitset set(70);
  EXPECT_EQ(set.word(1), 0x3fU);
  set.reset(69);
  EXPECT_EQ(set.word(1), 0x1fU);
  EXPECT_EQ(set.find(69), SummaryBitset::kNone);
}

}  // namespace
}  // namespace tpsim::kvcache
