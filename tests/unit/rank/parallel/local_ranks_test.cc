#include "rank/parallel/local_ranks.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/archive.h"
#include "tests/unit/rank/parallel/fake_model.h"
#include "tests/unit/rank/parallel/random_stream.h"

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

std::vector<std::shared_ptr<RankModel>> models(std::size_t count) {
  std::vector<std::shared_ptr<RankModel>> result;
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

// Answers that depend on the passes so far.
class CountingModel : public FakeModel {
 public:
  StepCost forward(const attention::ForwardMetadata& metadata) override {
    StepCost cost = FakeModel::forward(metadata);
    cost.other += 1e-6 * static_cast<double>(++passes_ % 7);
    return cost;
  }
  void save(StateWriter& state) const override { state(passes_); }
  void load(StateReader& state) override { state(passes_); }

 private:
  std::uint64_t passes_ = 0;
};

TEST(LocalRanks, GoOnFromACheckpoint) {
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[3] = 1.2;
  const auto make = [&slowdown] {
    std::vector<std::shared_ptr<RankModel>> model;
    model.push_back(std::make_unique<CountingModel>());
    return std::make_unique<ModeledExecutor>(LocalRanks(deployment(slowdown), 0, kTp, std::move(model)));
  };
  const std::unique_ptr<ModeledExecutor> whole = make();
  const Outcomes expected = run(*whole, 600);

  std::unique_ptr<ModeledExecutor> executor = make();
  RandomStream stream({});
  proto::ForwardBatch batch;
  for (int i = 0; i < 600; ++i) {
    if (i % 7 == 3) {
      StateWriter writer;
      executor->save(writer);
      executor = make();
      StateReader reader(writer.bytes());
      executor->load(reader);
      ASSERT_TRUE(reader.at_end());
    }
    stream.next(batch);
    ASSERT_EQ(executor->forward(batch).step_time, expected.step_times[static_cast<std::size_t>(i)]) << i;
  }
  std::vector<std::string> reports;
  for (const auto& report : executor->finish()) reports.push_back(report.SerializeAsString());
  EXPECT_EQ(reports, expected.reports);
}

// What a trace shows: all ranks once, and of each group all of a pass.
TEST(LocalRanks, GroupsSpendTheWholePass) {
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[3] = slowdown[5] = 1.2;
  slowdown[6] = 1.05;
  for (const std::size_t count : {std::size_t{1}, std::size_t{kTp}}) {
    ModeledExecutor executor(LocalRanks(deployment(slowdown), 0, kTp, models(count)));
    const std::vector<RankGroup> groups = executor.rank_groups();
    ASSERT_EQ(groups.size(), count == 1 ? 3U : kTp);
    if (count == 1) {
      EXPECT_EQ(groups[0].ranks, (std::vector<std::uint32_t>{0, 1, 2, 4, 7}));
      EXPECT_EQ(groups[1].ranks, (std::vector<std::uint32_t>{3, 5}));
      EXPECT_EQ(groups[2].ranks, (std::vector<std::uint32_t>{6}));
    }
    RandomStream stream({});
    proto::ForwardBatch batch;
    std::vector<RankSeconds> seconds;
    for (int i = 0; i < 50; ++i) {
      stream.next(batch);
      const double step_time = executor.forward(batch).step_time;
      executor.last_pass(seconds);
      ASSERT_EQ(seconds.size(), groups.size());
      for (std::size_t g = 0; g < groups.size(); ++g) {
        const RankSeconds& s = seconds[g];
        EXPECT_NEAR(s.encoder + s.attention + s.gemm + s.other + s.launch + s.wait + s.collective, step_time,
                    1e-12);
        EXPECT_GE(s.wait, 0);
        EXPECT_TRUE(s.wait == 0 || slowdown[groups[g].ranks[0]] < 1.2);
      }
    }
  }
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

// Two stages of four ranks; the second one's model costs half as much again.
TEST(LocalRanks, StagesArePricedApartAndWaitForTheirOwn) {
  const auto stage_models = [] {
    std::vector<std::shared_ptr<RankModel>> result;
    result.push_back(std::make_unique<FakeModel>(1.0));
    result.push_back(std::make_unique<FakeModel>(1.5));
    return result;
  };
  std::vector<double> slowdown(kTp, 1.0);
  slowdown[1] = 1.25;  // of the first stage
  DeploymentConfig config = deployment(slowdown);
  config.tp_size = kTp / 2;
  config.pp_size = 2;
  config.stage_kv_bytes = {1000, 3000};
  LocalRanks all(config, 0, kTp, stage_models());
  LocalRanks some(config, 6, 2, stage_models());
  ModeledExecutor executor(LocalRanks(config, 0, kTp, stage_models()));
  RankState state({.num_pages = 4096});
  FakeModel first(1.0), second(1.5);
  RandomStream stream({});
  proto::ForwardBatch batch;
  double gemm = 0, wait = 0;
  for (int i = 0; i < 300; ++i) {
    stream.next(batch);
    const StepTimes whole = all.price(batch);
    some.price(batch);
    ASSERT_EQ(whole, some.slowest_of_deployment());
    const scheduler::StepOutcome outcome = executor.forward(batch);
    const attention::ForwardMetadata metadata = state.apply(batch);
    ASSERT_EQ(outcome.stages.size(), 2u);
    if (metadata.forward_mode == proto::IDLE) continue;
    const StepCost a = first.forward(metadata), b = second.forward(metadata);
    EXPECT_EQ(outcome.stages[0].seconds,
              1.25 * a.attention + 1.25 * a.gemm + 1.25 * a.other + a.launch + a.collective);
    EXPECT_EQ(outcome.stages[1].seconds, b.attention + b.gemm + b.other + b.launch + b.collective);
    EXPECT_NEAR(outcome.step_time, outcome.stages[0].seconds + outcome.stages[1].seconds, 1e-12);
    EXPECT_EQ(outcome.host_time, a.host_seconds);
    gemm += b.gemm;
    wait += 0.25 * (a.attention + a.gemm + a.other);
  }
  const auto reports = executor.finish();
  ASSERT_EQ(reports.size(), kTp);
  EXPECT_NEAR(reports[4].gemm_seconds(), gemm, 1e-12 * gemm);
  EXPECT_EQ(reports[4].wait_seconds(), 0);
  EXPECT_EQ(reports[1].wait_seconds(), 0);
  EXPECT_NEAR(reports[0].wait_seconds(), wait, 1e-9 * wait);
  EXPECT_EQ(reports[7].peak_kv_bytes(), 3 * reports[0].peak_kv_bytes());
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
