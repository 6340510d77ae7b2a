// Decode passes that are counted against the same runs with passes applied to every request: every batch that
// the ranks get, every record, every gap between tokens and the report must be the same, bit for bit.
#include "scheduler/steady_decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/fewer_operations.h"
#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/random_config.h"

namespace tpsim::scheduler {
namespace {

// Passes take times that nobody foresees, the same for the same pass; keeps the bytes of every batch.
class RestlessExecutor : public Executor {
 public:
  explicit RestlessExecutor(const SchedulerConfig& config) : stages_(config.pipeline.size) {}

  std::string bytes;

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    bytes += batch.SerializeAsString();
    bytes += '\n';
    std::uint64_t tokens = 0;
    for (const std::uint32_t length : batch.extend_lens()) tokens += length;
    const std::uint64_t noise = (batch.sequence_number() * 0x9e3779b97f4a7c15U) >> 54;
    const double seconds = 0.004 + 1e-5 * static_cast<double>(tokens) + 1e-6 * static_cast<double>(noise);
    for (StageOutcome& stage : stages_) stage = {1e-5, seconds / static_cast<double>(stages_.size()), 2e-5};
    return {.step_time = seconds, .host_time = noise % 7 == 0 ? 1e-3 : 0, .stages = stages_};
  }

 private:
  std::vector<StageOutcome> stages_;
};

struct Run {
  std::string batches;
  std::string report;
  std::vector<RequestRecord> requests;
  std::vector<StepRecord> steps;
};

Run serve(SchedulerConfig config, const LoadConfig& load, const Workload& workload, bool defers) {
  config.defers_steady_decode = defers;
  RestlessExecutor executor(config);
  RecordingObserver observer;
  const proto::RunReport report = run_workload(config, load, WorkloadView(workload), executor, observer);
  return {std::move(executor.bytes), report.SerializeAsString(), std::move(observer.requests),
          std::move(observer.steps)};
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

void expect_same(const Run& one, const Run& other) {
  ASSERT_EQ(one.steps.size(), other.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    const StepRecord& a = one.steps[i];
    const StepRecord& b = other.steps[i];
    SCOPED_TRACE(i);
    ASSERT_EQ(a.forward_mode, b.forward_mode);
    ASSERT_EQ(bits(a.start_time), bits(b.start_time));
    ASSERT_EQ(bits(a.step_time), bits(b.step_time));
    ASSERT_EQ(a.decode_requests, b.decode_requests);
    ASSERT_EQ(a.waiting, b.waiting);
    ASSERT_EQ(a.running, b.running);
    ASSERT_EQ(a.pools[kvcache::kKvPool].held, b.pools[kvcache::kKvPool].held);
    ASSERT_EQ(a.pools[kvcache::kKvPool].cached, b.pools[kvcache::kKvPool].cached);
    ASSERT_EQ(a.pools[kvcache::kKvPool].free, b.pools[kvcache::kKvPool].free);
  }
  ASSERT_EQ(one.requests.size(), other.requests.size());
  for (std::size_t i = 0; i < one.requests.size(); ++i) {
    const RequestRecord& a = one.requests[i];
    const RequestRecord& b = other.requests[i];
    SCOPED_TRACE(a.id);
    ASSERT_EQ(a.id, b.id);
    ASSERT_EQ(a.state, b.state);
    ASSERT_EQ(a.output_tokens, b.output_tokens);
    ASSERT_EQ(a.retractions, b.retractions);
    ASSERT_EQ(bits(a.first_token_time), bits(b.first_token_time));
    ASSERT_EQ(bits(a.finish_time), bits(b.finish_time));
  }
  EXPECT_EQ(one.batches == other.batches, true);
  EXPECT_EQ(one.report == other.report, true);  // gaps between tokens among it
}

// Few arrivals and long answers: most steps repeat the one before.
Workload long_answers(std::mt19937_64& random, std::uint32_t longest) {
  Workload workload;
  workload.extra_keys = {""};
  kvcache::TokenSequence last;
  kvcache::TokenId fresh = 1;
  double time = 0;
  for (std::size_t i = 5 + random() % 40; i > 0; --i) {
    WorkloadRequest request;
    if (random() % 3 == 0) time += static_cast<double>(random() % 1000) * 1e-3;
    request.arrival_time = time;
    if (random() % 3 == 0) request.prompt = last;
    const auto length = static_cast<std::uint32_t>(1 + random() % longest);
    request.prompt.append({fresh, length});
    fresh += length + 3;
    request.max_new_tokens = static_cast<std::uint32_t>(1 + random() % (random() % 2 == 0 ? 20 : 500));
    if (random() % 3 == 0) {  // an end of sequence that nobody foresees
      request.output.append({fresh, static_cast<std::uint32_t>(1 + random() % request.max_new_tokens)});
      fresh += request.max_new_tokens;
    }
    request.sampling.ignore_eos = random() % 4 == 0;
    request.session = static_cast<std::uint32_t>(random() % 6);
    request.priority = static_cast<std::int32_t>(random() % 3);
    last = request.prompt;
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

// Everything that ends a stretch of steady decode steps, with prefills that are no longer than by default.
SchedulerConfig some_config(std::mt19937_64& random) {
  SchedulerConfig config = random_config(random);
  config.sglang_release = sglang_releases()[random() % 3];
  // From pools that retract and evict all the time to such that never do.
  config.max_total_num_tokens =
      std::uint64_t{config.page_size} * (1500 / config.page_size + 6 + random() % 60);
  if (random() % 3 == 0) config.max_total_num_tokens *= 20;
  config.context_length = static_cast<std::uint32_t>(config.max_total_num_tokens);
  config.max_prefill_tokens = SchedulerConfig{}.max_prefill_tokens;
  config.schedule_conservativeness = std::vector<double>{1, 0.05, 10}[random() % 3];
  config.priority.enable_scheduling = random() % 5 == 0;
  config.recv_interval = random() % 4 == 0 ? 5 : 1;
  config.cuda_graph_bs = {1, 2, 4, 8, 16};
  config.check_invariants = random() % 4 == 0;
  if (random() % 5 == 0) {
    config.data_parallel.size = static_cast<std::uint32_t>(2 + random() % 3);
    config.data_parallel.gathers_mlp = random() % 2 == 0;
  } else if (random() % 8 == 0) {
    config.pipeline.size = 2;
  } else if (random() % 8 == 0) {
    config.sliding_window_size = 100;
    config.swa_max_total_num_tokens = config.max_total_num_tokens;
  }
  return config;
}

class SteadyDecodeRuns : public ::testing::TestWithParam<int> {};

TEST_P(SteadyDecodeRuns, AreThoseOfSingleSteps) {
  for (int round = 0; round < 40; ++round) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * 1000 + round);
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const SchedulerConfig config = some_config(random);
    const Workload workload = long_answers(random, 300);
    LoadConfig load;
    if (random() % 3 == 0) load.max_concurrency = static_cast<std::uint32_t>(1 + random() % 10);
    if (random() % 4 == 0) load.request_rate = 20;
    if (random() % 4 == 0) load.session_mode = SessionMode::kTimestamps;
    load.warmup_requests = random() % 5 == 0 ? 2 : 0;
    load.front_end.request_seconds = random() % 3 == 0 ? 1e-3 : 0;
    load.front_end.stream_seconds = random() % 3 == 0 ? 1e-4 : 0;
    expect_same(serve(config, load, workload, true), serve(config, load, workload, false));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SteadyDecodeRuns, ::testing::Range(0, kFewerOperations ? 4 : 10));

}  // namespace
}  // namespace tpsim::scheduler
