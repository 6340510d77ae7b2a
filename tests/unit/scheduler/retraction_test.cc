// A pool that admission overcommits: decode runs out of pages and requests are given up. Only requests that
// may end early are overcommitted (since SGLang 0.5.23), so these do not ignore the end of sequence.
#include <gtest/gtest.h>

#include "scheduler/prefill_adder.h"
#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {
namespace {

SchedulerConfig tight_config() {
  SchedulerConfig config;
  config.max_total_num_tokens = 1000;
  config.max_running_requests = 100;
  config.context_length = 1000;
  config.disable_overlap_schedule = true;
  config.schedule_conservativeness = 0.1;  // reserves almost nothing for what is still to come
  config.check_invariants = true;
  return config;
}

WorkloadRequest request(kvcache::TokenId first, std::uint32_t length, std::uint32_t output) {
  WorkloadRequest r;
  r.prompt.append({first, length});
  r.max_new_tokens = output;
  r.sampling.ignore_eos = false;
  return r;
}

// Arrivals one after another: with estimates this low, each is admitted on what is free at its time.
Workload overcommitting() {
  Workload workload;
  for (int i = 0; i < 4; ++i) {
    workload.requests.push_back(request(100000 * (i + 1), 100 + 10 * static_cast<std::uint32_t>(i), 400));
    workload.requests.back().arrival_time = 0.1 * i;
  }
  return workload;
}

TEST(Retraction, EverythingCompletesAndNothingIsLost) {
  for (const bool overlap : {false, true}) {
    for (const std::uint32_t page_size : {1u, 16u}) {
      SchedulerConfig config = tight_config();
      config.disable_overlap_schedule = !overlap;
      config.page_size = page_size;
      FakeExecutor executor;
      RecordingObserver observer;
      const Workload workload = overcommitting();
      const proto::RunReport report = run_workload(config, {}, WorkloadView(workload), executor, observer);
      EXPECT_EQ(report.completed(), 4u);
      EXPECT_GT(report.retractions(), 0u) << "overlap " << overlap << " page size " << page_size;
      EXPECT_EQ(report.total_output_tokens(), 1600u);
      std::uint64_t counted = 0;
      for (const auto& record : observer.requests) counted += record.retractions;
      EXPECT_EQ(counted, report.retractions());
    }
  }
}

// The first victim is the request with the fewest generated tokens: the last to arrive.
TEST(Retraction, TheYoungestGoesFirst) {
  FakeExecutor executor;
  RecordingObserver observer;
  const Workload workload = overcommitting();
  run_workload(tight_config(), {}, WorkloadView(workload), executor, observer);
  for (const auto& record : observer.requests) {
    if (record.id == 0) {
      EXPECT_EQ(record.retractions, 0u);
    } else if (record.id == 3) {
      EXPECT_GT(record.retractions, 0u);
    }
  }
}

// What will run to its end is reserved whole, and nothing is retracted; older releases overcommit it, too.
TEST(Retraction, OutputsOfKnownLengthAreNotOvercommitted) {
  for (const SglangRelease& release : {v0_5_14(), v0_5_23()}) {
    SchedulerConfig config = tight_config();
    config.sglang_release = release;
    Workload workload = overcommitting();
    for (WorkloadRequest& r : workload.requests) r.sampling.ignore_eos = true;
    FakeExecutor executor;
    RecordingObserver observer;
    const proto::RunReport report = run_workload(config, {}, WorkloadView(workload), executor, observer);
    EXPECT_EQ(report.completed(), 4u);
    EXPECT_EQ(report.retractions() > 0, release == v0_5_14());
  }
}

TEST(NewTokenRatio, DecaysOverSixHundredStepsAndStartsAgainWhenIdle) {
  NewTokenRatio ratio(1.0);
  EXPECT_DOUBLE_EQ(ratio.current(), 0.7);
  for (int i = 0; i < 300; ++i) ratio.decay_step();
  EXPECT_NEAR(ratio.current(), 0.7 - (0.7 - 0.098) / 2, 1e-9);
  for (int i = 0; i < 1000; ++i) ratio.decay_step();
  EXPECT_NEAR(ratio.current(), 0.098, 1e-12);
  ratio.on_retract(0.5);
  EXPECT_DOUBLE_EQ(ratio.current(), 0.5);
  ratio.on_idle();
  EXPECT_DOUBLE_EQ(ratio.current(), 0.7);
  EXPECT_DOUBLE_EQ(NewTokenRatio(10).current(), 1.0);
}

}  // namespace
}  // namespace tpsim::scheduler
