#include "scheduler/load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tpsim::scheduler {
namespace {

Workload workload_at(std::initializer_list<double> times) {
  Workload workload;
  for (const double time : times) {
    WorkloadRequest request;
    request.arrival_time = time;
    workload.requests.push_back(request);
  }
  return workload;
}

TEST(Load, OpenLoopFollowsTimestampsAndTimeScale) {
  LoadConfig config;
  config.time_scale = 0.5;
  LoadGenerator load(config, workload_at({0, 2, 6}), 1);
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
  LoadGenerator load(config, workload, 7);
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
  LoadGenerator even(config, workload_at({0, 0, 0}), 1);
  even.pop();
  EXPECT_EQ(even.pop().time, 0.25);
  EXPECT_EQ(even.pop().time, 0.5);
  config.request_rate = std::numeric_limits<double>::infinity();
  LoadGenerator burst(config, workload_at({0, 5, 9}), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(burst.pop().time, 0);
}

TEST(Load, ClosedLoopWaitsForAPlace) {
  LoadConfig config;
  config.request_rate = std::numeric_limits<double>::infinity();
  config.max_concurrency = 2;
  LoadGenerator load(config, workload_at({0, 0, 0, 0}), 1);
  load.pop();
  load.pop();
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
  load.on_finished(3.5);
  EXPECT_EQ(load.next_time(), 3.5);
  EXPECT_EQ(load.pop().time, 3.5);
  EXPECT_EQ(load.next_time(), LoadGenerator::kNever);
}

}  // namespace
}  // namespace tpsim::scheduler
