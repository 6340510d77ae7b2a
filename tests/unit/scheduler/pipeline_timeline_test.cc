// Pipeline stages on the clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

#include "scheduler/replica.h"
#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {
namespace {

using Stages = std::vector<StageOutcome>;

TEST(PipelineTimeline, OneStageRunsOnePassAfterAnother) {
  PipelineTimeline timeline(1);
  EXPECT_EQ(timeline.launch(1, 0, 0, Stages{{0, 3, 0}}).end, 4);
  const PipelineTimeline::Pass second = timeline.launch(2, 0, 0, Stages{{0, 1, 0.5}});
  EXPECT_EQ(second.start, 4);
  EXPECT_EQ(second.end, 5.5);
}

TEST(PipelineTimeline, AStageWaitsForItsInputForTheStageAndForItsHost) {
  PipelineTimeline timeline(2);
  // Sent from 2 to 3, gathered until 3.5.
  EXPECT_EQ(timeline.launch(0, 0, 0, Stages{{0, 2, 1}, {0.5, 4, 0.25}}).end, 7.75);
  // The first stage sends until 3; its next pass arrives at 5.5, but the second works until 7.5.
  const PipelineTimeline::Pass second = timeline.launch(0, 0, 0, Stages{{0, 1, 1}, {0.5, 1, 0}});
  EXPECT_EQ(second.start, 3);
  EXPECT_EQ(second.end, 8.5);
  // The second stage's host is 6 behind the first one's.
  EXPECT_EQ(timeline.launch(10, 6, 0, Stages{{0, 1, 0}, {0, 1, 0}}).end, 17);
  EXPECT_EQ(timeline.launch(10, 0, 20, Stages{{0, 1, 0}, {0, 1, 0}}).start, 20);
}

TEST(PipelineTimeline, RefusesAnotherNumberOfStages) {
  PipelineTimeline timeline(2);
  EXPECT_THROW(timeline.launch(0, 0, 0, Stages{{0, 1, 0}}), std::logic_error);
}

// Against the definition, for passes that are issued in order: never faster than the busiest stage or than
// one pass alone, never slower than one pass after the other; and every stage one pass at a time.
TEST(PipelineTimeline, IsBetweenTheBusiestStageAndOnePassAfterAnother) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t size = 1 + random() % 6;
    const auto seconds = [&](int most) { return static_cast<double>(random() % most) / 64; };
    PipelineTimeline timeline(size);
    std::vector<double> busy(size);
    double serial = 0, end = 0, latency = 0, sent = 0;
    const std::size_t passes = 1 + random() % 40;
    for (std::size_t i = 0; i < passes; ++i) {
      Stages stages(size);
      double alone = 0;
      for (std::size_t s = 0; s < size; ++s) {
        stages[s] = {s == 0 ? 0 : seconds(8), seconds(100) + 0.01, seconds(8)};
        alone += stages[s].receive + stages[s].seconds + stages[s].send;
        busy[s] += stages[s].seconds + (s + 1 < size ? stages[s].send : 0);
      }
      sent = stages.back().send;
      const PipelineTimeline::Pass pass = timeline.launch(0, 0, 0, stages);
      EXPECT_GE(pass.end - pass.start, alone - 1e-9);
      serial += alone;
      latency = std::max(latency, alone);
      end = std::max(end, pass.end);
    }
    EXPECT_LE(end, serial + 1e-9);
    EXPECT_GE(end, *std::max_element(busy.begin(), busy.end()) - 1e-9);
    EXPECT_GE(end, latency - 1e-9);
    if (size == 1) {
      EXPECT_NEAR(end, busy[0] + sent, 1e-9);  // no pipeline: one pass after the other
    }

    proto::RunReport report;
    timeline.write_report(report);
    double idle = 0;
    ASSERT_EQ(report.pipeline_stages_size(), static_cast<int>(size));
    for (const proto::PipelineStage& stage : report.pipeline_stages()) {
      EXPECT_GE(stage.idle_fraction(), 0);
      EXPECT_LE(stage.idle_fraction(), 1);
      idle += stage.idle_fraction();
    }
    EXPECT_NEAR(report.pipeline_bubble_fraction(), idle / static_cast<double>(size), 1e-9);
  }
}

// A pass takes 10 ms on each of so many stages; handing over and the host cost nothing.
class EvenStages : public Executor {
 public:
  explicit EvenStages(std::size_t stages) : stages_(stages, StageOutcome{0, 0.01, 0}) {}
  StepOutcome forward(const proto::ForwardBatch& batch) override {
    seen.push_back(batch.micro_batch());
    return {.step_time = 0.01 * static_cast<double>(stages_.size()), .stages = stages_};
  }
  std::vector<std::uint32_t> seen;

 private:
  Stages stages_;
};

SchedulerConfig pipeline_config(std::uint32_t stages) {
  SchedulerConfig config;
  config.max_total_num_tokens = 10000;
  config.max_running_requests = 64;
  config.context_length = 4096;
  config.disable_overlap_schedule = true;
  config.check_invariants = true;
  config.pipeline.size = stages;
  return config;
}

Workload equal_requests(int count, std::uint32_t tokens) {
  Workload workload;
  for (int i = 0; i < count; ++i) {
    WorkloadRequest request;
    request.prompt.append({std::uint64_t(i) * 1000, 10});
    request.max_new_tokens = tokens;
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

TEST(PipelineSchedule, MicroBatchesFillTheStages) {
  SchedulerConfig config = pipeline_config(4);
  config.max_running_requests = 8;  // two for each micro-batch
  EvenStages executor(4);
  RecordingObserver observer;
  const proto::RunReport report =
      run_workload(config, {}, WorkloadInMemory(equal_requests(8, 50)), executor, observer);
  EXPECT_EQ(report.completed(), 8u);
  // Four micro-batches of 50 passes: one ends every 10 ms, the first after 40.
  EXPECT_NEAR(report.duration(), 0.01 * (4 * 50 + 3), 1e-9);
  EXPECT_LT(report.pipeline_bubble_fraction(), 0.03);
  for (std::size_t i = 0; i < executor.seen.size(); ++i) EXPECT_EQ(executor.seen[i], i % 4);
}

TEST(PipelineSchedule, OneRequestUsesOneStageAtATime) {
  EvenStages executor(4);
  RecordingObserver observer;
  const proto::RunReport report =
      run_workload(pipeline_config(4), {}, WorkloadInMemory(equal_requests(1, 50)), executor, observer);
  EXPECT_NEAR(report.duration(), 0.04 * 50, 1e-9);
  EXPECT_NEAR(report.pipeline_bubble_fraction(), 0.75, 1e-9);
  EXPECT_NEAR(report.gpu_busy_fraction(), 0.25, 1e-9);
}

TEST(PipelineSchedule, MicroBatchesHaveTheirOwnLimit) {
  SchedulerConfig config = pipeline_config(2);
  config.pipeline.max_micro_batch_size = 3;
  EvenStages executor(2);
  RecordingObserver observer;
  run_workload(config, {}, WorkloadInMemory(equal_requests(20, 30)), executor, observer);
  for (const StepRecord& step : observer.steps) EXPECT_LE(step.decode_requests, 3u);
}

}  // namespace
}  // namespace tpsim::scheduler
