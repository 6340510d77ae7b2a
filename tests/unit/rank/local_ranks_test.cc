#include "rank/parallel/local_ranks.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "rank/parallel/modeled_executor.h"
#include "tests/unit/rank/fake_model.h"
#include "tests/unit/rank/random_stream.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kTp = 8;

DeploymentConfig deployment(std::vector<double> slowdown) {
  DeploymentConfig config;
  config.tp_size = kTp;
  config.state.num_pages = 4096;
  config.state.kv_bytes_per_token = 1000;
  config.slowdown = std::move(slowdown);
  config.ranks.resize(kTp);
  for (std::uint32_t r = 0; r < kTp; ++r) config.ranks[r].set_weight_bytes(100 + r);
  return config;
}

std::vector<std::unique_ptr<RankModel>> models(std::size_t count) {
  std::vector<std::unique_ptr<RankModel>> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(std::make_unique<FakeModel>());
  return result;
}

struct Outcomes {
  std::vector<double> step_times;
  std::vector<std::string> reports;
};

Outcomes run(DeploymentExecutor& executor, int steps) {
  RandomStream stream({});
  proto::ForwardBatch batch;
  Outcomes result;
  for (int i = 0; i < steps; ++i) {
    stream.next(batch);
    result.step_times.push_back(executor.forward(batch).step_time);
  }
  for (const auto& report : executor.finish()) result.reports.push_back(report.SerializeAsString());
  return result;
}

TEST(LocalRanks, PricedOnceIsTheSameAsPricedForEach) {
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[3] = 1.2;
  slowdown[6] = 1.05;
  ModeledExecutor once(LocalRanks(deployment(slowdown), 0, kTp, models(1)));
  ModeledExecutor each(LocalRanks(deployment(slowdown), 0, kTp, models(kTp)));
  const Outcomes a = run(once, 2000);
  const Outcomes b = run(each, 2000);
  EXPECT_EQ(a.step_times, b.step_times);
  EXPECT_EQ(a.reports, b.reports);
  EXPECT_EQ(a.reports.size(), kTp);
}

TEST(LocalRanks, AStragglerSlowsTheStepAndTheOthersWait) {
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[3] = 2.0;
  proto::ForwardBatch batch;
  RandomStream stream({});
  do stream.next(batch);
  while (batch.forward_mode() == proto::IDLE);
  RankState state({.num_pages = 4096});
  const StepCost cost = FakeModel().forward(state.apply(batch));

  ModeledExecutor executor(LocalRanks(deployment(slowdown), 0, kTp, models(1)));
  const scheduler::StepOutcome outcome = executor.forward(batch);
  EXPECT_EQ(outcome.step_time,
            (2 * cost.attention + 2 * cost.gemm + 2 * cost.other + cost.launch) + cost.collective);
  EXPECT_EQ(outcome.host_time, cost.host_seconds);
  const auto reports = executor.finish();
  EXPECT_EQ(reports[3].slowdown(), 2.0);
  EXPECT_EQ(reports[3].wait_seconds(), 0.0);
  EXPECT_EQ(reports[3].gemm_seconds(), 2 * cost.gemm);
  EXPECT_EQ(reports[3].launch_seconds(), cost.launch);
  for (const std::uint32_t r : {0u, 1u, 2u, 4u, 5u, 6u, 7u}) {
    EXPECT_EQ(reports[r].rank(), r);
    EXPECT_EQ(reports[r].weight_bytes(), 100 + r);
    EXPECT_EQ(reports[r].gemm_seconds(), cost.gemm);
    EXPECT_DOUBLE_EQ(reports[r].wait_seconds(), cost.attention + cost.gemm + cost.other);
    EXPECT_EQ(reports[r].collective_seconds(), cost.collective);
    EXPECT_EQ(reports[r].communicated_bytes(), cost.communicated_bytes);
  }
}

TEST(LocalRanks, PrefillDecodeAndMixedPassesAreAccountedApart) {
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[3] = 2.0;
  ModeledExecutor executor(LocalRanks(deployment(slowdown), 0, kTp, models(1)));
  RankState state({.num_pages = 4096});
  FakeModel model;
  std::map<proto::ForwardMode, double> gemm, wait;
  RandomStream stream({});
  proto::ForwardBatch batch;
  for (int i = 0; i < 300; ++i) {
    stream.next(batch);
    executor.forward(batch);
    const attention::ForwardMetadata metadata = state.apply(batch);
    if (metadata.forward_mode == proto::IDLE) continue;
    const StepCost cost = model.forward(metadata);
    gemm[metadata.forward_mode] += cost.gemm;
    wait[metadata.forward_mode] += cost.attention + cost.gemm + cost.other;
  }
  ASSERT_EQ(gemm.size(), 3u) << "the stream has passes of every kind";
  const proto::RankReport report = executor.finish()[0];
  EXPECT_DOUBLE_EQ(report.prefill().gemm(), gemm[proto::EXTEND]);
  EXPECT_DOUBLE_EQ(report.decode().gemm(), gemm[proto::DECODE]);
  EXPECT_DOUBLE_EQ(report.mixed().gemm(), gemm[proto::MIXED]);
  EXPECT_NEAR(report.decode().wait(), wait[proto::DECODE], 1e-9 * wait[proto::DECODE]);
  EXPECT_DOUBLE_EQ(report.gemm_seconds(),
                   report.prefill().gemm() + report.decode().gemm() + report.mixed().gemm());
  EXPECT_DOUBLE_EQ(report.wait_seconds(),
                   report.prefill().wait() + report.decode().wait() + report.mixed().wait());
}

TEST(LocalRanks, AnyShareOfTheDeploymentKnowsItsSlowestRank) {
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[7] = 1.3;
  LocalRanks all(deployment(slowdown), 0, kTp, models(1));
  LocalRanks some(deployment(slowdown), 2, 2, models(1));
  RandomStream stream({});
  proto::ForwardBatch batch;
  for (int i = 0; i < 500; ++i) {
    stream.next(batch);
    const StepTimes whole = all.price(batch);
    some.price(batch);
    ASSERT_EQ(whole, all.slowest_of_deployment());
    ASSERT_EQ(whole, some.slowest_of_deployment());
  }
}

TEST(LocalRanks, RefusesNumbersThatDoNotFit) {
  const auto config = deployment(std::vector<double>(kTp, 1.0));
  EXPECT_THROW(LocalRanks(config, 0, 9, models(1)), std::invalid_argument);
  EXPECT_THROW(LocalRanks(config, 0, 0, models(1)), std::invalid_argument);
  EXPECT_THROW(LocalRanks(config, 0, 8, models(2)), std::invalid_argument);
  EXPECT_THROW(LocalRanks(deployment({1.0}), 0, 8, models(1)), std::invalid_argument);
}

}  // namespace
}  // namespace tpsim::rank
