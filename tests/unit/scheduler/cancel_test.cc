// Clients that leave: what becomes of their requests, where they are.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/scripted_run.h"

namespace tpsim::scheduler {
namespace {

constexpr double kNever = ScriptedRun::kNever;

SchedulerConfig deployment() {
  SchedulerConfig config;
  config.max_total_num_tokens = 10'000;
  config.max_running_requests = 2;
  config.context_length = 10'000;
  config.check_invariants = true;
  return config;
}

WorkloadRequest request(double at, std::uint32_t input, std::uint32_t output) {
  WorkloadRequest r;
  r.arrival_time = at;
  static kvcache::TokenId fresh = 1;
  r.prompt.append({fresh, input});
  fresh += 100'000;
  r.max_new_tokens = output;
  return r;
}

using Outcomes = std::vector<ScriptedRun::Outcome>;

// All of `requests` to their end.
Outcomes serve(const SchedulerConfig& config, const std::vector<WorkloadRequest>& requests,
               const std::vector<double>& cancels, const FrontEndConfig& front_end = {}) {
  Workload workload;
  workload.requests = requests;
  FakeExecutor executor;
  ScriptedRun run(config, front_end, executor, workload, cancels);
  while (run.step()) {
  }
  Outcomes out;
  for (const auto& outcome : run.outcomes()) out.push_back(outcome.value_or(ScriptedRun::Outcome{}));
  return out;
}

// A pass takes 10 ms and a prefill of 100 tokens 1 ms more.
TEST(Cancel, ARunningRequestLeavesWithItsNextToken) {
  for (const bool overlap : {false, true}) {
    SchedulerConfig config = deployment();
    config.disable_overlap_schedule = !overlap;
    const Outcomes out = serve(config, {request(0, 100, 50)}, {0.055});
    EXPECT_EQ(out[0].state, RequestState::kCancelled);
    // Tokens come at 11, 21, 31, … ms. The round that begins with the one of 61 ms is the first to know;
    // without overlap it decodes once more, with it the pass that follows runs already.
    EXPECT_EQ(out[0].output_tokens, 7u) << (overlap ? "overlap" : "no overlap");
  }
}

TEST(Cancel, AWaitingRequestLeavesAtOnceAndIsNeverComputed) {
  const Outcomes out =
      serve(deployment(), {request(0, 100, 50), request(0, 100, 50), request(0, 100, 5), request(0, 100, 5)},
            {kNever, kNever, 0.055, kNever});
  EXPECT_EQ(out[2].state, RequestState::kCancelled);
  EXPECT_EQ(out[2].output_tokens, 0u);
  EXPECT_LT(out[2].time, 0.075);
  EXPECT_EQ(out[3].state, RequestState::kCompleted);
  EXPECT_EQ(out[3].output_tokens, 5u);
}

TEST(Cancel, ARequestThatIsStillBeingReadNeverReachesTheScheduler) {
  FrontEndConfig front_end;
  front_end.pass_seconds = 1;
  const Outcomes out = serve(deployment(), {request(0, 100, 50), request(0.5, 100, 5)}, {0.25}, front_end);
  EXPECT_EQ(out[0].state, RequestState::kCancelled);
  EXPECT_EQ(out[0].time, 0.25);
  EXPECT_EQ(out[1].state, RequestState::kCompleted);
}

// A prompt of ten chunks, whose client leaves during the third.
TEST(Cancel, AChunkedPromptEndsBetweenChunks) {
  SchedulerConfig config = deployment();
  config.chunked_prefill_size = 100;
  const Outcomes now = serve(config, {request(0, 1000, 50)}, {0.025});
  EXPECT_EQ(now[0].state, RequestState::kCancelled);
  EXPECT_EQ(now[0].output_tokens, 0u);
  EXPECT_LT(now[0].time, 0.05);
  // SGLang 0.5.12 computes all of it, and then one token.
  config.sglang_release = v0_5_12();
  const Outcomes before = serve(config, {request(0, 1000, 50)}, {0.025});
  EXPECT_EQ(before[0].state, RequestState::kCancelled);
  EXPECT_EQ(before[0].output_tokens, 1u);
  EXPECT_GT(before[0].time, 0.1);
}

TEST(Cancel, WhatARunningRequestComputedIsCached) {
  std::vector<WorkloadRequest> requests = {request(0, 100, 50), request(1, 1, 1)};
  requests[1].prompt = requests[0].prompt;
  requests[1].prompt.append({99'000'000, 10});
  Workload workload;
  workload.requests = requests;
  FakeExecutor executor;
  ScriptedRun run(deployment(), {}, executor, workload, {0.055});
  while (run.step()) {
  }
  EXPECT_EQ(run.steps.back().cached_tokens, 100u);
}

TEST(Cancel, IsHeardOnceAndOfWhoIsHere) {
  Workload workload;
  workload.requests = {request(0, 100, 3), request(0, 100, 50)};
  FakeExecutor executor;
  ScriptedRun run(deployment(), {}, executor, workload, {});
  while (!run.outcomes()[0]) ASSERT_TRUE(run.step());
  Replica& replica = run.replica();
  EXPECT_FALSE(replica.cancel(0, replica.next_event_time()));  // has ended
  EXPECT_FALSE(replica.cancel(7, replica.next_event_time()));  // was never here
  EXPECT_TRUE(replica.cancel(1, replica.next_event_time()));
  EXPECT_FALSE(replica.cancel(1, replica.next_event_time()));
  replica.advance();
  EXPECT_FALSE(replica.cancel(1, replica.next_event_time()));
  while (run.step()) {
  }
  EXPECT_EQ(run.outcomes()[1]->state, RequestState::kCancelled);
}

}  // namespace
}  // namespace tpsim::scheduler
