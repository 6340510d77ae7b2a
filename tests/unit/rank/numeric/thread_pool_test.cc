// Which work a pool shares: that of microseconds is the caller's, whatever came before it.
#include "rank/linear/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tpsim::rank {
namespace {

using std::chrono::milliseconds;

// Of `rounds` rounds of eight parts, each as long as `wait`: how many parts others than the caller did. Every
// part is done once.
std::uint32_t done_by_others(ThreadPool& pool, std::uint32_t rounds, milliseconds wait) {
  std::atomic<std::uint32_t> others{0};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::vector<std::atomic<int>> calls(8);
    pool.parallel_for(8, [&](std::uint32_t i, std::uint32_t thread) {
      if (wait.count() > 0) std::this_thread::sleep_for(wait);
      if (thread > 0) ++others;
      ++calls[i];
    });
    for (const auto& call : calls) EXPECT_EQ(call, 1);
  }
  return others;
}

TEST(ThreadPool, SharesWhatIsLongAndNothingElse) {
  ThreadPool pool;
  if (pool.size() == 1) GTEST_SKIP() << "one core";
  for (int time = 0; time < 3; ++time) {
    // Some are shared: until it knows, and where another program took the core for a while.
    EXPECT_LT(done_by_others(pool, 1000, milliseconds(0)), 4000U);
    EXPECT_GT(done_by_others(pool, 4, milliseconds(2)), 0U);
  }
}

TEST(ThreadPool, OfSoManyThreadsSharesAll) {
  ThreadPool pool(2);
  done_by_others(pool, 100, milliseconds(0));
  for (int round = 0; round < 100; ++round) {
    // Neither ends before both have begun.
    std::atomic<int> begun{0};
    pool.parallel_for(2, [&](std::uint32_t, std::uint32_t) {
      ++begun;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (begun < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      EXPECT_EQ(begun, 2);
    });
  }
}

TEST(ThreadPool, PassesOnWhatTheCallerThrowsAlone) {
  ThreadPool pool;
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.parallel_for(50,
                                   [](std::uint32_t i, std::uint32_t) {
                                     if (i == 20) throw std::runtime_error("x");
                                   }),
                 std::runtime_error);
    EXPECT_LE(done_by_others(pool, 1, milliseconds(0)), 8U);
  }
}

}  // namespace
}  // namespace tpsim::rank
