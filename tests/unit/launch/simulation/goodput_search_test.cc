#include "launch/simulation/goodput_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

namespace tpsim::launch {
namespace {

// A server whose share of good requests depends on the rate as `share_at` says; all at once, 8 requests/s are
// served.
struct Found {
  proto::GoodputSearch search;
  std::optional<double> rate;
};
Found search(const std::function<double(double rate)>& share_at, int stop_after = 1000,
             const RateSearch& how = {}) {
  Found found;
  int probes = 0;
  GoodputRate result = search_rates(how, [&](double rate) -> std::optional<proto::GoodputProbe> {
    if (++probes > stop_after) return std::nullopt;
    proto::GoodputProbe probe;
    probe.set_offered_rate(rate);
    probe.set_goodput_share(share_at(rate));
    probe.set_request_throughput(8);
    probe.set_mean_e2e_latency_ms(2000);
    return probe;
  });
  found.search = std::move(result.search);
  found.rate = result.rate;
  return found;
}

TEST(GoodputSearch, FindsTheHighestRateToOnePercentInFewRuns) {
  for (const double limit : {0.06, 0.9, 3.0, 7.99, 8.0, 8.1, 30.0, 1000.0}) {
    const Found found = search([limit](double rate) { return rate <= limit ? 1.0 : 0.5; });
    EXPECT_EQ(found.search.outcome(), "found") << limit;
    ASSERT_TRUE(found.rate) << limit;
    EXPECT_LE(*found.rate, limit);
    EXPECT_GE(*found.rate * 1.0101, limit) << limit;
    EXPECT_LE(found.search.probes_size(), 20) << limit;
    EXPECT_TRUE(std::isinf(found.search.probes(0).offered_rate()));
    bool probed = false;
    for (const proto::GoodputProbe& probe : found.search.probes())
      probed |= probe.offered_rate() == *found.rate;
    EXPECT_TRUE(probed);
  }
}

TEST(GoodputSearch, SaysWhereThereIsNoLimitAndWhereNothingIsGoodEnough) {
  const Found unlimited = search([](double) { return 0.99; });
  EXPECT_EQ(unlimited.search.outcome(), "unlimited");
  EXPECT_FALSE(unlimited.rate);
  EXPECT_EQ(unlimited.search.probes_size(), 1);

  const Found unreachable = search([](double) { return 0.98; });
  EXPECT_EQ(unreachable.search.outcome(), "unreachable");
  EXPECT_FALSE(unreachable.rate);
  // Little's law: 0.05 requests/s of 2 s each are 0.1 at a time.
  EXPECT_LT(unreachable.search.probes().rbegin()->offered_rate(), 0.05);
  EXPECT_LT(unreachable.search.probes_size(), 12);
}

// A burst that only a slow load meets in the middle: the lower good rates stay unknown, and what was probed
// is told.
TEST(GoodputSearch, TellsWhatItProbedWhereSharesRiseAndFall) {
  const Found found = search([](double rate) { return rate <= 1 || (rate > 2.5 && rate <= 3) ? 1.0 : 0.9; });
  ASSERT_TRUE(found.rate);
  for (const proto::GoodputProbe& probe : found.search.probes()) {
    if (probe.offered_rate() > *found.rate) {
      EXPECT_LT(probe.goodput_share(), 0.99);
    }
  }
}

TEST(GoodputSearch, BeginsNearARateAndFindsTheSameInFewerRuns) {
  for (const double limit : {0.06, 3.0, 8.0, 30.0}) {
    const auto below = [limit](double rate) { return rate <= limit ? 1.0 : 0.5; };
    for (const double off : {0.7, 0.99, 1.0, 1.4}) {
      const Found found = search(below, 1000, {.resolution = 1.05, .step = 1.5, .near = limit * off});
      ASSERT_TRUE(found.rate) << limit << " from " << off;
      EXPECT_LE(*found.rate, limit);
      EXPECT_GE(*found.rate * 1.0501, limit) << off;
      EXPECT_LE(found.search.probes_size(), 7) << off;
    }
    const RateSearch at_least = {.near = limit * 1.01, .at_least = true};
    EXPECT_EQ(search(below, 1000, at_least).search.probes_size(), 1);
    EXPECT_EQ(search(below, 1000, at_least).search.outcome(), "stopped");
  }
  EXPECT_EQ(search([](double) { return 1.0; }, 1000, {.near = 2.0}).search.outcome(), "unlimited");
  EXPECT_EQ(search([](double) { return 0.5; }, 1000, {.near = 2.0}).search.outcome(), "unreachable");
}

TEST(GoodputSearch, StopsWhereAProbeIsStopped) {
  for (const int probes : {0, 1, 5}) {
    const Found found = search([](double rate) { return rate <= 3 ? 1.0 : 0.5; }, probes);
    EXPECT_EQ(found.search.outcome(), "stopped");
    EXPECT_FALSE(found.rate);
    EXPECT_EQ(found.search.probes_size(), probes);
  }
}

}  // namespace
}  // namespace tpsim::launch
