// SGLang's prefill delayer: who waits for whom, and how long (managers/prefill_delayer.py).
#include "scheduler/prefill_delayer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpsim::scheduler {
namespace {

constexpr std::size_t kMostRunning = 8;

PrefillBid bid(std::size_t running, std::size_t largest, std::size_t waiting = 1) {
  return {
      .asked = true, .token_usage = 0.5, .running = running, .waiting = waiting, .max_prefill_bs = largest};
}

PrefillDelayer delayer(std::uint32_t max_delay_passes, bool bounded = true) {
  PrefillDelayerConfig config;
  config.max_delay_passes = max_delay_passes;
  return {config, kMostRunning, bounded};
}

// How many passes in a row wait before one may prefill; at most 100.
std::size_t waits(PrefillDelayer& delayer, const std::vector<PrefillBid>& bids, double seconds = 0) {
  std::size_t passes = 0;
  while (passes < 100 && !delayer.allows(bids, seconds * static_cast<double>(passes))) ++passes;
  return passes;
}

TEST(PrefillDelayer, RanksWaitForOthersThatHaveNone) {
  PrefillDelayer waiting = delayer(5);
  const std::vector<PrefillBid> some = {bid(0, 0), {}};
  EXPECT_EQ(waits(waiting, some), 4u);
  EXPECT_EQ(waits(waiting, some), 4u);
  // The count begins again when all have one, or none.
  for (const std::vector<PrefillBid>& others :
       {std::vector{bid(0, 0), bid(0, 0)}, std::vector<PrefillBid>(2)}) {
    EXPECT_FALSE(waiting.allows(some, 0));
    EXPECT_TRUE(waiting.allows(others, 0));
    EXPECT_EQ(waits(waiting, some), 4u);
  }
  PrefillDelayer at_once = delayer(1);
  EXPECT_EQ(waits(at_once, some), 0u);
}

TEST(PrefillDelayer, ThoseThatAllHaveOneWaitForPlaces) {
  const std::vector<PrefillBid> room = {bid(4, 4), bid(2, 1)}, crowded = {bid(5, 1), bid(2, 4)};
  for (const bool bounded : {true, false}) {
    PrefillDelayer waiting = delayer(5, bounded);
    EXPECT_EQ(waits(waiting, room), 0u);
    EXPECT_EQ(waits(waiting, crowded), 0u) << "the first time";
    EXPECT_EQ(waits(waiting, crowded), bounded ? 4u : 100u);
    EXPECT_EQ(waits(waiting, room), 0u);
  }
}

TEST(PrefillDelayer, NothingWaitsForAPoolThatIsNearlyEmpty) {
  PrefillDelayerConfig config;
  config.token_usage_low_watermark = 0.3;
  PrefillDelayer waiting(config, kMostRunning, true);
  PrefillBid empty = bid(0, 0);
  empty.token_usage = 0.29;
  EXPECT_TRUE(waiting.allows(std::vector{bid(5, 8), empty, {}}, 0));
  empty.token_usage = 0.3;
  EXPECT_FALSE(waiting.allows(std::vector{bid(5, 8), empty, {}}, 0));
  // One that does not ask has no say.
  empty = {};
  EXPECT_FALSE(waiting.allows(std::vector{bid(5, 8), empty}, 0));
}

TEST(PrefillDelayer, TheQueueIsToBeAShareOfWhatRuns) {
  PrefillDelayerConfig config;
  config.queue_min_ratio = 0.6;
  config.max_delay_seconds = 0.05;
  PrefillDelayer waiting(config, kMostRunning, true);
  const auto queue = [](std::size_t length) { return std::vector{bid(5, 3, length), bid(1, 0, 1)}; };
  EXPECT_EQ(waits(waiting, queue(2)), 0u) << "the first time";
  EXPECT_EQ(waits(waiting, queue(2)), 29u);
  EXPECT_EQ(waits(waiting, queue(3)), 0u);
  EXPECT_EQ(waits(waiting, queue(2), 0.02), 3u) << "0, 20, 40 ms";
  EXPECT_EQ(waits(waiting, std::vector{bid(0, 3, 1), bid(0, 3, 1)}), 0u) << "nothing runs";
  // No longer than the largest prefill.
  EXPECT_EQ(waits(waiting, std::vector{bid(6, 2, 2), bid(6, 2, 2)}), 0u);
}

TEST(PrefillSizes, TheLargestOfThoseThatCount) {
  PrefillSizes recent, all;
  for (std::size_t i = 0; i < 17; ++i) {
    recent.add_to_recent(i == 0 ? 9 : 1 + i % 3);
    all.add_to_all(i == 0 ? 9 : 1 + i % 3);
    EXPECT_EQ(recent.largest(), i < 16 ? 9u : 3u) << i;
  }
  EXPECT_EQ(all.largest(), 9u);
}

}  // namespace
}  // namespace tpsim::scheduler
