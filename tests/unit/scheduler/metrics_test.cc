#include "scheduler/metrics.h"

#include <gtest/gtest.h>

namespace tpsim::scheduler {
namespace {

RequestRecord completed(double arrival, double first, double finish, std::uint32_t in, std::uint32_t out,
                        std::uint32_t cached) {
  RequestRecord record;
  record.state = RequestState::kCompleted;
  record.arrival_time = arrival;
  record.first_token_time = first;
  record.finish_time = finish;
  record.input_tokens = in;
  record.output_tokens = out;
  record.cached_tokens = cached;
  return record;
}

TEST(RunMetrics, FollowsTheBenchmarksDefinitions) {
  RunMetrics metrics;
  metrics.on_request(completed(0, 1, 5, 100, 5, 20));
  metrics.on_request(completed(2, 4, 10, 300, 3, 100));
  RequestRecord rejected;
  rejected.state = RequestState::kRejected;
  metrics.on_request(rejected);
  proto::RunReport report;
  WeightedSamples itl;
  metrics.write(10, PassMetrics(), itl, report);
  EXPECT_EQ(report.completed(), 2u);
  EXPECT_EQ(report.failed(), 1u);
  EXPECT_DOUBLE_EQ(report.duration(), 10);
  EXPECT_DOUBLE_EQ(report.request_throughput(), 0.2);
  EXPECT_DOUBLE_EQ(report.input_throughput(), 40);
  EXPECT_DOUBLE_EQ(report.output_throughput(), 0.8);
  EXPECT_DOUBLE_EQ(report.mean_ttft_ms(), 1500);
  EXPECT_DOUBLE_EQ(report.mean_tpot_ms(), (1000.0 + 3000.0) / 2);
  EXPECT_DOUBLE_EQ(report.mean_e2e_latency_ms(), 6500);
  EXPECT_DOUBLE_EQ(report.concurrency(), 1.3);
  EXPECT_DOUBLE_EQ(report.cache_hit_rate(), 0.3);
  EXPECT_DOUBLE_EQ(report.last_arrival_time(), 2);
}

TEST(RunMetrics, TimelineKeepsItsIntegralsHoweverLongTheRun) {
  RunMetrics metrics;
  PassMetrics passes, other;
  StepRecord step;
  step.forward_mode = proto::DECODE;
  step.decode_requests = step.decode_tokens = 4;
  step.running = 4;
  step.pools[kvcache::kKvPool] = {.held = 50, .free = 50};
  step.step_time = 0.5;
  for (int i = 0; i < 5000; ++i) {
    step.start_time = 0.5 * i;
    (i % 1000 < 900 ? passes : other).on_step(step, step.step_time);
  }
  passes.add(other);
  proto::RunReport report;
  metrics.on_request(completed(0, 1, 2500, 1, 2, 0));
  WeightedSamples itl;
  metrics.write(2500, passes, itl, report);
  ASSERT_LE(report.timeline_size(), 256);
  ASSERT_GE(report.timeline_size(), 100);
  double tokens = 0;
  for (int i = 0; i < report.timeline_size(); ++i) {
    const double end = i + 1 < report.timeline_size() ? report.timeline(i + 1).time() : 2500;
    tokens += report.timeline(i).decode_tokens_per_second() * (end - report.timeline(i).time());
    EXPECT_NEAR(report.timeline(i).running(), 4, 1e-6);
    EXPECT_NEAR(report.timeline(i).kv_usage(), 0.5, 1e-6);
  }
  EXPECT_NEAR(tokens, 20000, 1e-6);
  EXPECT_EQ(report.decode_steps(), 5000u);
}

TEST(RunMetrics, GoodRequestsMeetEveryLevelAndAreCountedOfAll) {
  RequestRecord record;
  record.state = RequestState::kCompleted;
  record.arrival_time = 10;
  record.first_token_time = 10.5;
  record.finish_time = 12.5;
  record.output_tokens = 21;  // ttft 500 ms, tpot 100 ms, latency 2500 ms
  const auto met = [&record](ServiceLevels levels) { return levels.met_by(record); };
  EXPECT_TRUE(met({}));
  EXPECT_TRUE(met({.ttft_ms = 500.001, .tpot_ms = 100.001, .e2e_ms = 2500.001}));
  EXPECT_FALSE(met({.ttft_ms = 499.999}));
  EXPECT_FALSE(met({.tpot_ms = 99.999}));
  EXPECT_FALSE(met({.e2e_ms = 2499.999}));
  EXPECT_FALSE(met({.ttft_ms = 1000, .tpot_ms = 99, .e2e_ms = 5000}));

  RunMetrics metrics({.tpot_ms = 150});
  metrics.on_request(record);
  record.output_tokens = 11;  // 200 ms
  metrics.on_request(record);
  record.output_tokens = 1;  // none after the first
  record.finish_time = record.first_token_time;
  metrics.on_request(record);
  record.state = RequestState::kRejected;
  metrics.on_request(record);
  record.state = RequestState::kUnfinished;
  metrics.on_request(record);
  proto::RunReport report;
  WeightedSamples itl;
  metrics.write(12.5, PassMetrics(), itl, report);
  EXPECT_EQ(report.completed(), 3u);
  EXPECT_DOUBLE_EQ(report.goodput_share(), 2.0 / 5);
  EXPECT_DOUBLE_EQ(report.request_goodput(), 2 / 12.5);
  EXPECT_DOUBLE_EQ(report.request_throughput(), 3 / 12.5);

  proto::RunReport without;
  RunMetrics().write(1, PassMetrics(), itl, without);
  EXPECT_FALSE(without.has_request_goodput());
  EXPECT_FALSE(without.has_goodput_share());
}

}  // namespace
}  // namespace tpsim::scheduler
