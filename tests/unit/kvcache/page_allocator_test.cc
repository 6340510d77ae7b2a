#include "kvcache/pools/page_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace tpsim::kvcache {
namespace {

TEST(PageAllocator, RefusesMoreThanIsFreeAndChangesNothing) {
  PageAllocator allocator(100, 1);
  std::vector<PageRun> runs;
  EXPECT_FALSE(allocator.alloc(101, runs));
  EXPECT_TRUE(runs.empty());
  EXPECT_EQ(allocator.available_pages(), 100u);
  EXPECT_TRUE(allocator.alloc(100, runs));
  EXPECT_EQ(allocator.alloc_next(5), PageAllocator::kNoPage);
}

TEST(PageAllocator, CatchesDoubleFreeAndPagesBeyondThePool) {
  PageAllocator allocator(100, 1);
  std::vector<PageRun> runs;
  ASSERT_TRUE(allocator.alloc(10, runs));
  allocator.free(runs[0]);
  EXPECT_THROW(allocator.free(runs[0]), std::logic_error);
  EXPECT_THROW(allocator.free({99, 2}), std::logic_error);
}

TEST(PageAllocator, ASequenceThatGrowsStaysOneRunWhileThereIsRoom) {
  PageAllocator allocator(1 << 20, 1);
  std::vector<std::vector<PageRun>> sequences(64);
  std::vector<std::uint32_t> last(64);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(allocator.alloc(2000, sequences[i]));
    last[i] = sequences[i].back().first + sequences[i].back().count - 1;
  }
  for (int step = 0; step < 1000; ++step) {
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t page = allocator.alloc_next(last[i]);
      ASSERT_EQ(page, last[i] + 1);
      last[i] = page;
    }
  }
}

TEST(PageAllocator, AgreesWithASetOverRandomOperations) {
  for (const std::uint32_t pages : {1u, 63u, 64u, 65u, 1000u, 5000u, 20'000u}) {
    std::mt19937_64 random(pages);
    PageAllocator allocator(pages, 1);
    std::set<std::uint32_t> taken;
    for (int i = 0; i < 3000; ++i) {
      if (random() % 3 == 0) {
        const std::uint32_t page = allocator.alloc_next(static_cast<std::uint32_t>(random() % pages));
        ASSERT_EQ(page == PageAllocator::kNoPage, taken.size() == pages);
        if (page != PageAllocator::kNoPage) {
          ASSERT_TRUE(taken.insert(page).second);
        }
      } else if (random() % 2 == 0) {
        std::vector<PageRun> runs;
        const auto count = static_cast<std::uint32_t>(random() % (pages / 3 + 2));
        const bool fits = count <= pages - taken.size();
        ASSERT_EQ(allocator.alloc(count, runs), fits);
        std::uint32_t got = 0;
        for (const PageRun& run : runs) {
          for (std::uint32_t p = 0; p < run.count; ++p) ASSERT_TRUE(taken.insert(run.first + p).second);
          got += run.count;
        }
        ASSERT_EQ(got, fits ? count : 0);
      } else if (!taken.empty()) {
        const auto first = *taken.lower_bound(static_cast<std::uint32_t>(random() % (*taken.rbegin() + 1)));
        const std::uint32_t most = random() % 2 == 0 ? 200 : pages;
        std::uint32_t count = 0;
        while (count < most && taken.erase(first + count) > 0) ++count;
        allocator.free({first, count});
      }
      ASSERT_EQ(allocator.available_pages(), pages - taken.size());
    }
    for (std::uint32_t page = 0; page < pages; ++page)
      ASSERT_EQ(allocator.is_allocated(page), taken.contains(page));
  }
}

}  // namespace
}  // namespace tpsim::kvcache
