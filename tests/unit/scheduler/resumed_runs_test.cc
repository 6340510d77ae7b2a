// A run that is interrupted at some moment and gone on with in another one is the run that was not: the same
// passes, the same records, the same report, whatever the deployment and the load.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/engine.h"
#include "tests/unit/fewer_operations.h"
#include "tests/unit/scheduler/front_ends.h"
#include "tests/unit/scheduler/pricing_ranks.h"
#include "tests/unit/scheduler/random_config.h"
#include "tests/unit/scheduler/random_requests.h"

namespace tpsim::scheduler::resumed_runs_test {

// Everything that a run does, in the order in which it does it.
class Diary : public RunObserver, public Executor {
 public:
  explicit Diary(const SchedulerConfig& config) : ranks_(config) {}

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    entries.push_back(batch.SerializeAsString());
    StepOutcome outcome = ranks_.forward(batch);
    outcome.host_time = 1e-4;
    outcome.issue_time = outcome.step_time / (1 + batch.sequence_number() % 3);
    outcome.launches = 100;
    return outcome;
  }
  void on_request(const RequestRecord& r) override {
    entries.push_back(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", r.id, static_cast<int>(r.state),
                                  r.session, r.input_tokens, r.output_tokens, r.cached_tokens, r.retractions,
                                  r.interruptions.size(), r.arrival_time, r.first_scheduled_time,
                                  r.first_token_time, r.finish_time));
  }
  void on_step(const StepRecord& r) override {
    entries.push_back(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", r.sequence_number,
                                  static_cast<int>(r.forward_mode), r.start_time, r.step_time,
                                  r.extend_requests, r.extend_tokens, r.cached_tokens, r.decode_requests,
                                  r.decode_tokens, r.capture_bucket, r.waiting, r.running, r.returned_time));
    for (const PoolUse& pool : r.pools)
      entries.back() += fmt::format(" {} {} {}", pool.held, pool.cached, pool.free);
  }
  bool on_progress(const Progress&) override { return true; }

  std::vector<std::string> entries;

 private:
  PricingRanks ranks_;
};

// Keeps the state of a run at one of its moments, and where its diary was then.
class OneCheckpoint : public Checkpoints {
 public:
  OneCheckpoint(std::uint64_t at, const Diary& diary) : left_(at), diary_(diary) {}

  std::string_view resumed() override { return {}; }
  void read_rest(StateReader&) override {}
  bool due() override { return left_-- == 0; }
  void save(const std::function<void(StateWriter&)>& write_run) override {
    StateWriter state;
    write_run(state);
    bytes = state.bytes();
    entries = diary_.entries.size();
  }

  std::string bytes;
  std::size_t entries = 0;

 private:
  std::uint64_t left_;
  const Diary& diary_;
};

// Goes on from it, and leaves its state at once and at every moment after: nothing changes by that.
class Resumed : public Checkpoints {
 public:
  Resumed(std::string_view bytes, bool saves) : bytes_(bytes), saves_(saves) {}
  std::string_view resumed() override { return bytes_; }
  void read_rest(StateReader& state) override { all_read = state.at_end(); }
  bool due() override { return saves_ && ++asked_ % 16 == 1; }
  void save(const std::function<void(StateWriter&)>& write_run) override {
    StateWriter state;
    write_run(state);
  }

  bool all_read = false;

 private:
  std::string_view bytes_;
  bool saves_;
  std::uint64_t asked_ = 0;
};

Workload random_workload(std::mt19937_64& random, std::uint64_t capacity) {
  Workload workload;
  workload.extra_keys = {"", "a", "b"};
  const double pace = std::vector{0.0, 0.002, 0.02, 0.2}[random() % 4];
  const bool sessions = random() % 2 == 0, long_answers = random() % 2 == 0;
  double time = 0;
  kvcache::TokenId fresh = 1;
  const std::size_t count = 1 + random() % 40;
  for (std::size_t i = 0; i < count; ++i) {
    WorkloadRequest r;
    time += pace * static_cast<double>(random() % 100) / 50;
    r.arrival_time = time;
    draw_prompt(random, workload.requests, capacity, fresh, r);
    r.max_new_tokens = static_cast<std::uint32_t>(1 + random() % (long_answers ? 300 : 24));
    draw_answer(random, fresh, r);
    if (sessions) r.session = static_cast<std::uint32_t>(random() % 8);
    if (random() % 2 == 0) r.think_time = static_cast<double>(random() % 4) * 0.05;
    if (random() % 4 != 0) r.priority = static_cast<std::int32_t>(random() % 3);
    r.extra_key = static_cast<std::uint32_t>(random() % 8 == 0 ? random() % 3 : 0);
    workload.requests.push_back(std::move(r));
  }
  return workload;
}

LoadConfig random_load(std::mt19937_64& random) {
  LoadConfig load;
  if (random() % 3 == 0) load.max_concurrency = static_cast<std::uint32_t>(1 + random() % 10);
  if (random() % 4 == 0) load.request_rate = 20;
  load.fixed_interval = random() % 4 == 0;
  if (random() % 4 == 0) load.session_mode = SessionMode::kTimestamps;
  load.warmup_requests = random() % 4 == 0 ? 2 : 0;
  load.flush_cache = random() % 2 == 0;
  load.front_end = std::vector{FrontEndConfig{}, kTokenIdFrontEnd, kKitFrontEnd}[random() % 3];
  load.front_end.stream_interval = static_cast<std::uint32_t>(1 + random() % 3);
  if (random() % 2 == 0) load.goodput.ttft_ms = 100;
  return load;
}

void give_host(std::mt19937_64& random, SchedulerConfig& config) {
  if (random() % 2 == 0) config.cuda_graph_bs = {1, 2, 4, 8, 16};
  if (random() % 3 == 0) config.launch_queue = 264;
  if (random() % 3 == 0) config.pass_gap_seconds = config.pass_gap_request_seconds = 1e-4;
  if (random() % 3 == 0) config.serial_extend_seconds = 1e-3;
  if (random() % 3 == 0)
    config.compile_batch_seconds = config.compile_chunk_seconds = config.compile_decode_seconds = 0.2;
}

void interrupt_and_go_on(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  SchedulerConfig config = random_deployment(random);
  give_host(random, config);
  if (may_have_host_tier(config) && random() % 2 == 0) give_host_tier(random, config);
  config.hicache.tier.first_page = 0;  // numeric runs have no checkpoints
  const Workload workload = random_workload(random, config.max_total_num_tokens);
  const LoadConfig load = random_load(random);
  const WorkloadView view(workload);

  Diary whole(config);
  const std::string report = run_workload(config, load, view, whole, whole).SerializeAsString();
  // Moments are about as many as entries; behind the last one there is nothing to go on from.
  Diary first(config);
  OneCheckpoint checkpoint(random() % (whole.entries.size() + 1), first);
  ASSERT_EQ(run_workload(config, load, view, first, first, &checkpoint).SerializeAsString(), report);
  ASSERT_EQ(first.entries, whole.entries);
  if (checkpoint.bytes.empty()) return;

  Diary rest(config);
  Resumed resumed(checkpoint.bytes, random() % 2 == 0);
  const proto::RunReport later = run_workload(config, load, view, rest, rest, &resumed);
  ASSERT_TRUE(resumed.all_read);
  ASSERT_EQ(checkpoint.entries + rest.entries.size(), whole.entries.size());
  for (std::size_t i = 0; i < rest.entries.size(); ++i)
    ASSERT_EQ(rest.entries[i], whole.entries[checkpoint.entries + i]) << i;
  ASSERT_EQ(later.SerializeAsString(), report);
}

class ResumedRuns : public ::testing::TestWithParam<int> {};

TEST_P(ResumedRuns, AreTheRunsThatWereNeverInterrupted) {
  const char* const asked = std::getenv("TPSIM_RESUMED_RUNS");
  const int rounds = asked != nullptr ? std::stoi(asked) : std::getenv("TPSIM_LONG") != nullptr ? 1'000 : 60;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1'000'000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(seed);
    interrupt_and_go_on(seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ResumedRuns, ::testing::Range(0, kFewerOperations ? 4 : 8));

}  // namespace tpsim::scheduler::resumed_runs_test
