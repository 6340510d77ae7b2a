// Random workloads under random configurations. The pool's sum is checked after every step, and a plain
// model of a rank (checking_rank.h) every pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/unit/fewer_operations.h"
#include "tests/unit/scheduler/checking_rank.h"
#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/random_config.h"

namespace tpsim::scheduler {
namespace {

Workload random_workload(std::mt19937_64& random, std::uint64_t capacity) {
  Workload workload;
  workload.extra_keys = {"", "a", "b"};
  std::vector<kvcache::TokenSequence> earlier;
  double time = 0;
  kvcache::TokenId fresh = 1;
  const int count = 20 + static_cast<int>(random() % 100);
  for (int i = 0; i < count; ++i) {
    WorkloadRequest r;
    time += static_cast<double>(random() % 100) * 1e-3;
    r.arrival_time = time;
    // Often a continuation of an earlier prompt, cut somewhere.
    if (!earlier.empty() && random() % 3 != 0) {
      r.prompt = earlier[random() % earlier.size()];
      r.prompt.truncate(random() % (r.prompt.size() + 1));
    }
    const auto length = static_cast<std::uint32_t>(1 + random() % (capacity / 6));
    r.prompt.append({fresh, length});
    fresh += length + 7;
    r.max_new_tokens = static_cast<std::uint32_t>(1 + random() % 60);
    if (random() % 2 == 0) {
      r.output.append({fresh, r.max_new_tokens});
      fresh += r.max_new_tokens + 3;
    }
    r.session = static_cast<std::uint32_t>(random() % 12);
    if (random() % 2 == 0) r.think_time = static_cast<double>(random() % 4) * 0.05;
    r.priority = static_cast<std::int32_t>(random() % 3);
    r.extra_key = static_cast<std::uint32_t>(random() % 8 == 0 ? random() % 3 : 0);
    earlier.push_back(r.prompt);
    earlier.back().append(r.output);
    workload.requests.push_back(std::move(r));
  }
  return workload;
}

// Closed: no turn is sent before the end of the answer before it and its think time, and none without think
// time before its distance in the trace. Timestamps: the report counts exactly those that were early.
void check_turns(const Workload& workload, const std::vector<RequestRecord>& records, SessionMode mode,
                 const proto::RunReport& report) {
  std::vector<const RequestRecord*> by_id(workload.requests.size());
  for (const RequestRecord& record : records) by_id[record.id] = &record;
  std::map<std::uint32_t, std::size_t> last;
  std::uint64_t turns = 0;
  std::uint64_t early = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    if (request.session == 0) continue;
    const auto [entry, first] = last.try_emplace(request.session, i);
    if (first) continue;
    const RequestRecord& before = *by_id[entry->second];
    const double sent = by_id[i]->arrival_time;
    const double gap = request.arrival_time - workload.requests[entry->second].arrival_time;
    entry->second = i;
    ++turns;
    early += sent < before.finish_time ? 1 : 0;
    if (mode == SessionMode::kTimestamps) continue;
    EXPECT_GE(sent, before.finish_time + request.think_time.value_or(0));
    if (!request.think_time) {
      EXPECT_GE(sent, before.arrival_time + gap);
    }
  }
  EXPECT_EQ(report.turns(), turns);
  EXPECT_EQ(report.early_turns(), early);
  EXPECT_EQ(report.session_mode(), mode == SessionMode::kClosed ? "closed" : "timestamps");
  if (mode == SessionMode::kClosed) {
    EXPECT_EQ(early, 0u);
  }
}

// Serves a random workload and checks what its records must say.
void run_and_check(std::mt19937_64& random, const SchedulerConfig& config) {
  const Workload workload = random_workload(random, config.max_total_num_tokens);
  LoadConfig load;
  if (random() % 3 == 0) load.max_concurrency = static_cast<std::uint32_t>(1 + random() % 10);
  if (random() % 4 == 0) load.request_rate = 20;
  if (random() % 4 == 0) load.session_mode = SessionMode::kTimestamps;

  CheckingRank rank(config);
  RecordingObserver observer;
  const proto::RunReport report = run_workload(config, load, WorkloadView(workload), rank, observer);
  ASSERT_EQ(report.completed() + report.failed(), workload.requests.size());
  ASSERT_EQ(observer.requests.size(), workload.requests.size());
  for (const auto& record : observer.requests) {
    if (record.state == RequestState::kRejected) continue;
    const auto& source = workload.requests[record.id];
    EXPECT_EQ(record.input_tokens, source.prompt.size());
    EXPECT_LE(record.output_tokens, source.max_new_tokens);
    EXPECT_LT(record.cached_tokens, record.input_tokens);
    EXPECT_GE(record.first_scheduled_time, record.arrival_time);
    EXPECT_GT(record.first_token_time, record.first_scheduled_time);
    EXPECT_GE(record.finish_time, record.first_token_time);
  }
  check_turns(workload, observer.requests, load.session_mode, report);
  if (config.speculation.enabled() && rank.verified() > 0) {
    if (!config.enable_mixed_chunk) {
      EXPECT_EQ(report.mixed_steps(), 0u);
    }
    EXPECT_LE(rank.verified(), rank.accepted());
  }
}

class RandomRuns : public ::testing::TestWithParam<int> {};

TEST_P(RandomRuns, KeepEveryInvariant) {
  for (int round = 0; round < 25; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    if (random() % 3 == 0) {
      config.pipeline.size = static_cast<std::uint32_t>(2 + random() % 4);
      config.pipeline.async_batch_depth = static_cast<std::uint32_t>(random() % 3);
    }
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantWhileTheySpeculate) {
  for (int round = 0; round < 6; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 500;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    speculate(random, config, sglang_releases()[round % 3]);
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantOfBothPools) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 700;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    give_windows(random, config);
    if (random() % 4 == 0) speculate(random, config);
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantOfStatesWhileTheySpeculate) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 800;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    speculate(random, config);
    give_states(random, config);
    run_and_check(random, config);
  }
}

TEST_P(RandomRuns, KeepEveryInvariantOfTheHostTier) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(GetParam()) * 1000 + static_cast<std::uint64_t>(round) + 900;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerConfig config = random_config(random);
    config.sglang_release = sglang_releases()[random() % sglang_releases().size()];
    if (random() % 3 == 0) give_priorities(random, config);
    give_host_tier(random, config);
    run_and_check(random, config);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, ::testing::Range(0, kFewerOperations ? 4 : 12));

}  // namespace
}  // namespace tpsim::scheduler
