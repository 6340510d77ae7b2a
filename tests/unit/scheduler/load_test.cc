#include "scheduler/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace tpsim::scheduler {
namespace {

// A load and its workload.
class HeldLoad : private WorkloadInMemory, public LoadGenerator {
 public:
  HeldLoad(const LoadConfig& config, Workload workload)
      : WorkloadInMemory(std::move(workload)),
        LoadGenerator(config, static_cast<const WorkloadInMemory&>(*this)) {}
};

Workload workload_at(std::initializer_list<double> times) {
  Workload workload;
  for (const double time : times) {
    WorkloadRequest request;
    request.arrival_time = time;
    workload.requests.push_back(request);
  }
  return workload;
}

// A turn of `session`, arriving at `time`.
WorkloadRequest turn(std::uint32_t session, double time, std::optional<double> think_time = {}) {
  WorkloadRequest request;
  request.session = session;
  request.arrival_time = time;
  request.think_time = think_time;
  return request;
}

TEST(Load, OpenLoopFollowsTimestampsAndTimeScale) {
  LoadConfig config;
  config.time_scale = 0.5;
  HeldLoad load(config, workload_at({0, 2, 6}));
  EXPECT_EQ(load.pop().time, 0);
  EXPECT_EQ(load.next_time(), 1);
  EXPECT_EQ(load.pop().time, 1);
  EXPECT_EQ(load.pop().time, 3);
  EXPECT_TRUE(load.exhausted());
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
}

TEST(Load, PoissonRateHasItsMeanAndVariance) {
  Workload workload;
  workload.requests.resize(40001);
  LoadConfig config;
  config.request_rate = 8;
  config.seed = 7;
  HeldLoad load(config, workload);
  double last = 0;
  double sum = 0;
  double squares = 0;
  load.pop();
  while (!load.exhausted()) {
    const double time = load.pop().time;
    sum += time - last;
    squares += (time - last) * (time - last);
    last = time;
  }
  const double mean = sum / 40000;
  EXPECT_NEAR(mean, 0.125, 0.002);
  EXPECT_NEAR(std::sqrt(squares / 40000 - mean * mean), 0.125, 0.003);
}

TEST(Load, FixedRateIsEvenAndInfinityIsAtOnce) {
  LoadConfig config;
  config.request_rate = 4;
  config.fixed_interval = true;
  HeldLoad even(config, workload_at({0, 0, 0}));
  even.pop();
  EXPECT_EQ(even.pop().time, 0.25);
  EXPECT_EQ(even.pop().time, 0.5);
  config.request_rate = std::numeric_limits<double>::infinity();
  HeldLoad burst(config, workload_at({0, 5, 9}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(burst.pop().time, 0);
}

TEST(Load, ClosedLoopWaitsForAPlace) {
  LoadConfig config;
  config.request_rate = std::numeric_limits<double>::infinity();
  config.max_concurrency = 2;
  HeldLoad load(config, workload_at({0, 0, 0, 0}));
  load.pop();
  load.pop();
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
  load.on_finished(0, 3.5);
  EXPECT_EQ(load.next_time(), 3.5);
  EXPECT_EQ(load.pop().time, 3.5);
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
}

// Ends that clients see late come to the load before the first of them is over.
TEST(Load, APlaceIsFreeWhenItsOwnClientHasSeenTheEnd) {
  LoadConfig config;
  config.request_rate = std::numeric_limits<double>::infinity();
  config.max_concurrency = 3;
  HeldLoad load(config, workload_at({0, 0, 0, 0, 0, 0}));
  for (int i = 0; i < 3; ++i) load.pop();
  load.on_finished(1, 5);
  load.on_finished(0, 7);
  load.on_finished(2, 6);  // of another replica
  EXPECT_EQ(load.pop().time, 5);
  EXPECT_EQ(load.pop().time, 6);
  EXPECT_EQ(load.pop().time, 7);
}

TEST(Load, ATurnFollowsTheEndOfTheAnswerAndTheThinkTime) {
  Workload workload;
  workload.requests = {turn(1, 0), turn(2, 1), turn(1, 5, 2.5), turn(2, 6, 0.0)};
  LoadConfig config;
  config.time_scale = 2;
  HeldLoad load(config, workload);
  EXPECT_EQ(load.turns(), 2u);
  EXPECT_EQ(load.pop().id, 0u);
  EXPECT_EQ(load.next_time(), 2);
  EXPECT_EQ(load.pop().id, 1u);
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
  EXPECT_FALSE(load.exhausted());
  load.on_finished(0, 30);  // thinks for 2 * 2.5
  load.on_finished(1, 31);
  LoadGenerator::Sent sent = load.pop();
  EXPECT_EQ(sent.id, 3u);
  EXPECT_EQ(sent.time, 31);
  EXPECT_FALSE(sent.early);
  sent = load.pop();
  EXPECT_EQ(sent.id, 2u);
  EXPECT_EQ(sent.time, 35);
  EXPECT_FALSE(sent.early);
  EXPECT_TRUE(load.exhausted());
}

// Without think times the distance in the trace is kept, and a late answer moves all turns that follow.
TEST(Load, ATurnWithoutThinkTimeKeepsItsDistanceAndItsAnswer) {
  Workload workload;
  workload.requests = {turn(1, 0), turn(1, 10), turn(1, 14)};
  HeldLoad load({}, workload);
  load.pop();
  load.on_finished(0, 3);
  EXPECT_EQ(load.pop().time, 10);
  load.on_finished(1, 25);
  EXPECT_EQ(load.pop().time, 25);

  HeldLoad late({}, workload);
  late.pop();
  late.on_finished(0, 12);
  EXPECT_EQ(late.pop().time, 12);
  late.on_finished(1, 13);
  EXPECT_EQ(late.pop().time, 16);
}

TEST(Load, TimestampsSendTurnsEarlyAndSaySo) {
  Workload workload;
  workload.requests = {turn(1, 0), turn(1, 4, 1.0), turn(1, 8)};
  LoadConfig config;
  config.session_mode = SessionMode::kTimestamps;
  HeldLoad load(config, workload);
  EXPECT_FALSE(load.pop().early);
  EXPECT_EQ(load.next_time(), 4);
  EXPECT_TRUE(load.pop().early);
  load.on_finished(1, 7);
  EXPECT_FALSE(load.pop().early);  // its answer was there, though not that of the turn before it
  EXPECT_TRUE(load.exhausted());
}

TEST(Load, ARateIsOfConversationsAndSingleRequests) {
  Workload workload;
  workload.requests = {turn(1, 0), turn(1, 1, 0.5), turn(0, 2), turn(2, 3)};
  LoadConfig config;
  config.request_rate = 4;
  config.fixed_interval = true;
  HeldLoad load(config, workload);
  EXPECT_EQ(load.pop().time, 0);
  EXPECT_EQ(load.pop().time, 0.25);
  load.on_finished(0, 0.3);
  const LoadGenerator::Sent third = load.pop();
  EXPECT_EQ(third.id, 3u);
  EXPECT_EQ(third.time, 0.5);
  EXPECT_EQ(load.pop().time, 0.8);
}

TEST(Load, AThinkingUserHoldsNoPlaceAndOneWhoDoesNotKeepsIt) {
  Workload workload;
  workload.requests = {turn(1, 0), turn(2, 0), turn(1, 1, 5.0), turn(2, 1, 0.0)};
  LoadConfig config;
  config.request_rate = std::numeric_limits<double>::infinity();
  config.max_concurrency = 1;
  HeldLoad load(config, workload);
  EXPECT_EQ(load.pop().id, 0u);
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
  load.on_finished(0, 2);
  EXPECT_EQ(load.pop().id, 1u);
  load.on_finished(1, 9);  // turn 2 of session 1 has been due since 7
  LoadGenerator::Sent sent = load.pop();
  EXPECT_EQ(sent.id, 3u);
  EXPECT_EQ(sent.time, 9);
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
  load.on_finished(3, 11);
  sent = load.pop();
  EXPECT_EQ(sent.id, 2u);
  EXPECT_EQ(sent.time, 11);
}

}  // namespace
}  // namespace tpsim::scheduler
