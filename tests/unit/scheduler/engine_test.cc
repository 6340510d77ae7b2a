// Whole runs on a virtual clock with a cost that is easy to compute by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "proto/versions.h"
#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SchedulerConfig small_config() {
  SchedulerConfig config;
  config.max_total_num_tokens = 100000;
  config.max_running_requests = 100;
  config.context_length = 50000;
  config.check_invariants = true;
  config.disable_overlap_schedule = true;
  return config;
}

WorkloadRequest request(double arrival, kvcache::TokenId first, std::uint32_t length, std::uint32_t output) {
  WorkloadRequest r;
  r.arrival_time = arrival;
  r.prompt.append({first, length});
  r.max_new_tokens = output;
  return r;
}

proto::RunReport run(const SchedulerConfig& config, const Workload& workload, FakeExecutor& executor,
                     RecordingObserver& observer, const LoadConfig& load = {}) {
  return run_workload(config, load, WorkloadView(workload), executor, observer);
}

TEST(Engine, OneRequestTakesOnePrefillAndADecodePerFurtherToken) {
  FakeExecutor executor;
  RecordingObserver observer;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 100, 5));
  const proto::RunReport report = run(small_config(), workload, executor, observer);
  ASSERT_EQ(executor.batches.size(), 5u);
  EXPECT_EQ(executor.batches[0].forward_mode(), proto::EXTEND);
  EXPECT_EQ(executor.batches[0].version(), kForwardBatchVersion);
  EXPECT_EQ(executor.batches[0].extend_lens(0), 100u);
  EXPECT_EQ(executor.batches[0].extend_prefix_lens(0), 0u);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(executor.batches[i].forward_mode(), proto::DECODE);
  EXPECT_EQ(executor.batches[1].decode_join_size(), 1);
  EXPECT_EQ(executor.batches[2].decode_join_size(), 0);
  EXPECT_NEAR(report.mean_ttft_ms(), 11, 1e-9);
  EXPECT_NEAR(report.mean_tpot_ms(), 10, 1e-9);
  EXPECT_NEAR(report.mean_itl_ms(), 10, 1e-9);
  EXPECT_NEAR(report.duration(), 0.051, 1e-12);
  EXPECT_EQ(report.total_output_tokens(), 5u);
}

// SGLang's SchedulerRecvSkipper: what comes while others decode waits till enough passes went by; behind a
// prefill, and where nothing runs, it is seen at once.
TEST(Engine, LooksForRequestsEveryFewDecodePasses) {
  for (const std::uint32_t interval : {1U, 2U, 10U}) {
    SchedulerConfig config = small_config();
    config.recv_interval = interval;
    FakeExecutor executor;
    RecordingObserver observer;
    Workload workload;
    workload.requests.push_back(request(0, 1000, 100, 30));
    workload.requests.push_back(request(0.015, 2000, 100, 2));
    workload.requests.push_back(request(5, 3000, 100, 2));
    const proto::RunReport report = run(config, workload, executor, observer);
    std::vector<std::size_t> prefills;
    for (std::size_t i = 0; i < executor.batches.size(); ++i)
      if (executor.batches[i].forward_mode() == proto::EXTEND) prefills.push_back(i);
    ASSERT_EQ(prefills.size(), 3u);
    EXPECT_EQ(prefills[1], 1 + interval);
    EXPECT_NEAR(report.duration(), 5 + 0.021, 1e-9);
  }
}

// A gap of the host's behind each pass, and what is compiled once.
TEST(Engine, HostTimeThatOverlapDoesNotHide) {
  SchedulerConfig config = small_config();
  config.disable_overlap_schedule = false;
  Workload workload;
  for (std::uint32_t i = 0; i < 3; ++i) workload.requests.push_back(request(0, 1000 + 200 * i, 100, 11));
  FakeExecutor executor;
  RecordingObserver observer;
  const proto::RunReport plain = run(config, workload, executor, observer);
  config.pass_gap_seconds = 0.001;
  config.pass_gap_request_seconds = 0.0002;
  FakeExecutor gaps;
  const proto::RunReport slower = run(config, workload, gaps, observer);
  EXPECT_NEAR(slower.mean_tpot_ms(), plain.mean_tpot_ms() + 1 + 3 * 0.2, 1e-9);
  config.pass_gap_seconds = config.pass_gap_request_seconds = 0;
  config.compile_batch_seconds = 2;
  config.compile_chunk_seconds = 30;
  FakeExecutor compiles;
  EXPECT_NEAR(run(config, workload, compiles, observer).mean_ttft_ms(), plain.mean_ttft_ms() + 2000, 1e-9);
  config.compile_batch_seconds = config.compile_chunk_seconds = 0;
  config.compile_decode_seconds = 3;
  FakeExecutor eager;
  EXPECT_NEAR(run(config, workload, eager, observer).mean_ttft_ms(), plain.mean_ttft_ms(), 1e-9);
  config.cuda_graph_bs = {1, 4};
  FakeExecutor captured;  // the first tokens wait, too: the pass is launched before they are looked at
  EXPECT_NEAR(run(config, workload, captured, observer).mean_ttft_ms(), 3000, 1e-9);
  config.cuda_graph_bs = {};
  config.compile_batch_seconds = 2;
  config.compile_chunk_seconds = 30;
  config.chunked_prefill_size = 256;  // two prompts and a part of the third
  FakeExecutor chunks;
  EXPECT_GT(run(config, workload, chunks, observer).mean_ttft_ms(), plain.mean_ttft_ms() + 32000);
}

// With overlap the end of a request is seen one pass late: one more decode runs, and its token is dropped.
// The last token is foreseen by its number, so nothing is decoded behind it; before 0.5.23 it was.
TEST(Engine, OverlapHidesHostWorkAndForeseesTheLastToken) {
  SchedulerConfig config = small_config();
  config.disable_overlap_schedule = false;
  config.scheduler_step_seconds = config.decode_step_seconds = 0.002;
  FakeExecutor executor;
  RecordingObserver observer;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 100, 5));
  const proto::RunReport report = run(config, workload, executor, observer);
  EXPECT_EQ(executor.batches.size(), 5u);
  EXPECT_EQ(report.total_output_tokens(), 5u);
  EXPECT_NEAR(report.mean_tpot_ms(), 10, 1e-9);  // host work hidden
  EXPECT_NEAR(report.mean_ttft_ms(), 13, 1e-9);  // but not in front of the first pass
  config.sglang_release = v0_5_14();
  FakeExecutor older;
  RecordingObserver unused;
  run(config, workload, older, unused);
  EXPECT_EQ(older.batches.size(), 6u);
  config.sglang_release = default_release();
  config.disable_overlap_schedule = true;
  FakeExecutor serial;
  RecordingObserver ignored;
  EXPECT_NEAR(run(config, workload, serial, ignored).mean_tpot_ms(), 12, 1e-9);
}

// Beside overlap a decode is no shorter than what the host does for it and for each of its requests; of
// data-parallel ranks, each of which has a host process, that is each one's share.
TEST(Engine, ADecodeIsNoShorterThanItsHostWork) {
  SchedulerConfig config = small_config();
  config.disable_overlap_schedule = false;
  config.decode_step_seconds = 0.004;
  config.decode_request_seconds = 0.002;
  const auto tpot_ms = [&](std::uint32_t requests) {
    Workload workload;
    for (std::uint32_t i = 0; i < requests; ++i) workload.requests.push_back(request(0, 1000 * i, 100, 40));
    FakeExecutor executor;
    RecordingObserver observer;
    return run(config, workload, executor, observer).mean_tpot_ms();
  };
  EXPECT_NEAR(tpot_ms(1), 10, 1e-9);  // the device's
  EXPECT_NEAR(tpot_ms(4), 12, 0.2);
  config.decode_request_seconds = 0.005;
  EXPECT_NEAR(tpot_ms(4), 24, 1);
}

// Without overlap each pass waits for what the host does between two, and a prefill for more.
TEST(Engine, WithoutOverlapTheHostIsPaid) {
  SchedulerConfig config = small_config();
  config.scheduler_step_seconds = config.decode_step_seconds = 0.001;
  Workload workload;
  for (std::uint32_t i = 0; i < 4; ++i) workload.requests.push_back(request(0, 1000 + 200 * i, 100, 11));
  FakeExecutor executor;
  RecordingObserver observer;
  const proto::RunReport plain = run(config, workload, executor, observer);
  config.pass_gap_seconds = 0.0015;
  config.pass_gap_request_seconds = 0.0001;
  config.serial_extend_seconds = 0.004;
  FakeExecutor host;
  const proto::RunReport serial = run(config, workload, host, observer);
  EXPECT_NEAR(serial.mean_tpot_ms(), plain.mean_tpot_ms() - 1 + 1.5 + 4 * 0.1, 1e-9);
  EXPECT_NEAR(serial.mean_ttft_ms(), plain.mean_ttft_ms() + 4, 1e-9);
  config.disable_overlap_schedule = false;
  FakeExecutor hidden;
  EXPECT_LT(run(config, workload, hidden, observer).mean_ttft_ms(), plain.mean_ttft_ms() + 1);
}

// What comes while a pass is launched is seen by who reads a socket after it, and not where requests reach
// the scheduler by no way at all.
TEST(Engine, RequestsThatComeDuringALaunchAreSeenBehindASocket) {
  SchedulerConfig config = small_config();
  config.disable_overlap_schedule = false;
  config.scheduler_step_seconds = config.decode_step_seconds = 0.001;
  Workload workload;
  workload.requests.push_back(request(0, 1, 1000, 3));
  workload.requests.push_back(request(0.003, 2, 1000, 3));
  const auto second_pass = [&](bool by_socket) {
    LoadConfig load;
    load.front_end.by_socket = by_socket;
    FakeExecutor executor;
    executor.prefill_issue = 0.005;
    RecordingObserver observer;
    run(config, workload, executor, observer, load);
    return observer.steps.at(1).forward_mode;
  };
  EXPECT_EQ(second_pass(false), proto::DECODE);
  EXPECT_EQ(second_pass(true), proto::EXTEND);
}

// The result of a pass is looked at when the next one has been issued: a prefill's first token waits for the
// host to issue a prefill behind it, and for the device's queue to take the last of its kernels.
TEST(Engine, AFirstTokenWaitsUntilThePrefillBehindItsOwnIsIssued) {
  SchedulerConfig config = small_config();
  config.disable_overlap_schedule = false;
  config.chunked_prefill_size = 1000;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 1000, 3));
  workload.requests.push_back(request(0, 5000, 1000, 3));  // passes of 20 ms each
  config.launch_queue = 300;
  const auto first_tokens = [&](double issue, double launches) {
    FakeExecutor executor;
    executor.prefill_issue = issue;
    executor.prefill_launches = launches;
    RecordingObserver observer;
    run(config, workload, executor, observer);
    EXPECT_EQ(executor.batches[1].extend_lens_size(), 1);
    std::array<double, 2> seen{};
    for (const RequestRecord& record : observer.requests) seen[record.id] = record.first_token_time;
    return seen;
  };
  const auto expect = [](std::array<double, 2> seen, double first, double second) {
    EXPECT_NEAR(seen[0], first, 1e-12);
    EXPECT_NEAR(seen[1], second, 1e-12);
  };
  expect(first_tokens(0, 0), 0.020, 0.040);
  expect(first_tokens(0.005, 0), 0.020, 0.040);  // issued at 5 and 10 ms, behind the first pass
  expect(first_tokens(0.030, 0), 0.060, 0.060);  // at 30 and 60 ms, when both have run
  expect(first_tokens(0, 600), 0.030, 0.040);    // the second pass has run to its half by then
  expect(first_tokens(0, 1200), 0.035, 0.040);
  expect(first_tokens(0, 150), 0.020, 0.040);  // both fit in
  expect(first_tokens(0, 200), 0.020, 0.040);  // there is room before the first pass has ended
  // What the wait came to is a line of its own in the report.
  config.scheduler_step_seconds = 1e-9;
  const auto host = [&](double launches) {
    FakeExecutor executor;
    executor.prefill_issue = 0.001;
    executor.prefill_launches = launches;
    RecordingObserver observer;
    return run(config, workload, executor, observer).host_seconds();
  };
  EXPECT_NEAR(host(600).launch_queue_delay(), 0.010, 1e-6);
  EXPECT_NEAR(host(600).launch_queue(), 0.009 + 0.019, 1e-6);  // from 1 to 10 ms, from 11 to 30 ms
  EXPECT_NEAR(host(600).issuing(), 0.002, 1e-6);
  EXPECT_EQ(host(150).launch_queue(), 0);
  config.scheduler_step_seconds = 0;
  config.launch_queue = 0;
  expect(first_tokens(0, 600), 0.020, 0.040);
  config.launch_queue = 300;
  config.disable_overlap_schedule = true;  // every result is looked at before anything else
  expect(first_tokens(0.005, 600), 0.020, 0.040);
}

// A snapshot of states that the radix cache takes over is read by the host behind the pass launched
// meanwhile: a server of SGLang 0.5.16 with Qwen3.5 sends first tokens when the next prefill has run.
TEST(Engine, AFirstTokenThatLeavesASnapshotWaitsForThePrefillBehindIt) {
  SchedulerConfig config = small_config();
  config.disable_overlap_schedule = false;
  config.disable_radix_cache = false;
  config.chunked_prefill_size = 1024;
  config.max_running_requests = 4;
  config.cuda_graph_bs = {1, 2, 4};
  Workload workload;
  workload.requests.push_back(request(0, 1000, 1024, 3));
  workload.requests.push_back(request(0, 5000, 1024, 3));  // passes of 20.24 ms each
  const auto first_tokens = [&] {
    FakeExecutor executor;
    RecordingObserver observer;
    run(config, workload, executor, observer);
    std::array<double, 2> seen{};
    for (const RequestRecord& record : observer.requests) seen[record.id] = record.first_token_time;
    return seen;
  };
  EXPECT_NEAR(first_tokens()[0], 0.02024, 1e-12);
  EXPECT_NEAR(first_tokens()[1], 0.04048, 1e-12);
  config.states = {.slots = 20, .tracking_slots = 2};
  EXPECT_NEAR(first_tokens()[0], 0.02024, 1e-12);  // AMD's GPUs
  config.states.read_behind_next_pass = true;
  EXPECT_NEAR(first_tokens()[0], 0.04048, 1e-12);
  EXPECT_NEAR(first_tokens()[1], 0.04048, 1e-12);  // nothing but a graph of decodes is behind it
}

TEST(Engine, SharedPrefixIsComputedOnce) {
  FakeExecutor executor;
  RecordingObserver observer;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 400, 3));
  workload.requests.push_back(request(1, 1000, 500, 3));
  const proto::RunReport report = run(small_config(), workload, executor, observer);
  ASSERT_EQ(observer.requests.size(), 2u);
  EXPECT_EQ(observer.requests[1].cached_tokens, 400u);
  EXPECT_NEAR(report.cache_hit_rate(), 400.0 / 900.0, 1e-12);
}

// The same prompt again: the match stops before the last token, which must be computed.
TEST(Engine, AMatchNeverCoversTheWholePrompt) {
  FakeExecutor executor;
  RecordingObserver observer;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 400, 2));
  workload.requests.push_back(request(1, 1000, 400, 2));
  run(small_config(), workload, executor, observer);
  EXPECT_EQ(observer.requests[1].cached_tokens, 399u);
  SchedulerConfig paged = small_config();
  paged.page_size = 16;
  FakeExecutor executor16;
  RecordingObserver observer16;
  run(paged, workload, executor16, observer16);
  EXPECT_EQ(observer16.requests[1].cached_tokens, 384u);
}

TEST(Engine, NextTurnFindsThePreviousAnswerWhereTheTraceNamesIt) {
  Workload workload;
  WorkloadRequest first = request(0, 1000, 100, 10);
  first.output.append({5000, 10});
  WorkloadRequest second = request(1, 1000, 100, 4);
  second.prompt.append({5000, 10});
  second.prompt.append({9000, 30});
  workload.requests = {first, second};
  FakeExecutor executor;
  RecordingObserver observer;
  run(small_config(), workload, executor, observer);
  // The last generated token has no KV: it was sampled, never fed back.
  EXPECT_EQ(observer.requests[1].cached_tokens, 109u);
}

TEST(Engine, LongPromptsAreChunkedAndMixedWithDecodes) {
  SchedulerConfig config = small_config();
  config.chunked_prefill_size = 256;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 200, 30));
  workload.requests.push_back(request(0.05, 5000, 1000, 3));
  FakeExecutor executor;
  RecordingObserver observer;
  run(config, workload, executor, observer);
  std::vector<std::uint32_t> chunks;
  for (const auto& batch : executor.batches) {
    for (const auto length : batch.extend_lens()) chunks.push_back(length);
  }
  EXPECT_EQ(chunks, (std::vector<std::uint32_t>{200, 256, 256, 256, 232}));

  config.enable_mixed_chunk = true;
  FakeExecutor mixed;
  RecordingObserver mixed_observer;
  const proto::RunReport report = run(config, workload, mixed, mixed_observer);
  EXPECT_EQ(report.mixed_steps(), 4u);
  chunks.clear();
  for (const auto& batch : mixed.batches) {
    for (const auto length : batch.extend_lens()) chunks.push_back(length);
  }
  // The decoding request takes one token of each chunk.
  EXPECT_EQ(chunks, (std::vector<std::uint32_t>{200, 255, 255, 255, 235}));
}

TEST(Engine, MaxRunningRequestsIsNeverExceeded) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 7;
  Workload workload;
  for (int i = 0; i < 60; ++i) workload.requests.push_back(request(0, 1000 * (i + 1), 50, 20));
  FakeExecutor executor;
  RecordingObserver observer;
  const proto::RunReport report = run(config, workload, executor, observer);
  EXPECT_EQ(report.completed(), 60u);
  std::uint32_t most = 0;
  for (const auto& step : observer.steps) most = std::max(most, step.running);
  EXPECT_EQ(most, 7u);
}

TEST(Engine, ClosedLoopKeepsItsConcurrency) {
  Workload workload;
  for (int i = 0; i < 40; ++i) workload.requests.push_back(request(0, 1000 * (i + 1), 64, 8));
  LoadConfig load;
  load.request_rate = kInfinity;
  load.max_concurrency = 4;
  FakeExecutor executor;
  RecordingObserver observer;
  const proto::RunReport report = run(small_config(), workload, executor, observer, load);
  EXPECT_EQ(report.completed(), 40u);
  for (const auto& step : observer.steps) EXPECT_LE(step.running + step.waiting, 4u);
  EXPECT_GT(report.concurrency(), 3.5);
  EXPECT_LE(report.concurrency(), 4.0 + 1e-9);
}

// The first request, cut to 32 tokens, is served before the clock starts; only its prefix stays.
TEST(Engine, WarmUpIsNotCounted) {
  Workload workload;
  for (int i = 0; i < 5; ++i) workload.requests.push_back(request(i, 1000 * (i + 1), 64, 50));
  LoadConfig load;
  for (const bool overlap : {false, true}) {
    SchedulerConfig config = small_config();
    config.disable_overlap_schedule = !overlap;
    load.warmup_requests = 0;
    FakeExecutor cold_executor;
    RecordingObserver cold_observer;
    const proto::RunReport cold = run(config, workload, cold_executor, cold_observer, load);
    load.warmup_requests = 3;
    for (const bool flush : {true, false}) {
      load.flush_cache = flush;
      FakeExecutor executor;
      RecordingObserver observer;
      const proto::RunReport warm = run(config, workload, executor, observer, load);
      EXPECT_EQ(warm.completed(), 5u);
      EXPECT_EQ(warm.total_output_tokens(), 250u);
      EXPECT_EQ(observer.requests.size(), 5u);
      EXPECT_EQ(observer.steps.size(), warm.steps());
      EXPECT_GE(executor.batches.size(), warm.steps() + 32);
      EXPECT_EQ(observer.requests[0].arrival_time, 0);
      EXPECT_EQ(observer.requests[0].cached_tokens, flush ? 0u : 63u);
      EXPECT_EQ(warm.evicted_tokens(), 0u);
      if (flush) {
        EXPECT_EQ(warm.SerializeAsString(), cold.SerializeAsString());
      }
    }
  }
}

TEST(Engine, CaptureBucketIsTheNextCapturedSize) {
  SchedulerConfig config = small_config();
  config.cuda_graph_bs = {1, 2, 4, 8};
  Workload workload;
  for (int i = 0; i < 9; ++i) workload.requests.push_back(request(0.0, 1000 * (i + 1), 8, 2 + i));
  FakeExecutor executor;
  RecordingObserver observer;
  run(config, workload, executor, observer);
  for (const auto& step : observer.steps) {
    if (step.forward_mode != proto::DECODE) {
      EXPECT_EQ(step.capture_bucket, 0u);
      continue;
    }
    const std::uint32_t bs = step.decode_requests;
    EXPECT_EQ(step.capture_bucket, bs > 8 ? 0u : bs > 4 ? 8u : bs > 2 ? 4u : bs);
  }
}

TEST(Engine, WhatCannotFitIsRejectedAndTheRestIsServed) {
  SchedulerConfig config = small_config();
  config.max_total_num_tokens = 1000;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 5000, 10));     // longer than the pool
  workload.requests.push_back(request(0, 100000, 60000, 10));  // longer than the context
  workload.requests.push_back(request(0, 200000, 100, 10));
  FakeExecutor executor;
  RecordingObserver observer;
  const proto::RunReport report = run(config, workload, executor, observer);
  EXPECT_EQ(report.failed(), 2u);
  EXPECT_EQ(report.completed(), 1u);
}

TEST(Engine, OutputIsClippedByTheContextLength) {
  SchedulerConfig config = small_config();
  config.context_length = 200;
  Workload workload;
  workload.requests.push_back(request(0, 1000, 150, 1000));
  FakeExecutor executor;
  RecordingObserver observer;
  run(config, workload, executor, observer);
  EXPECT_EQ(observer.requests[0].output_tokens, 200u - 1 - 150 - 1);
}

TEST(Engine, AStoppedRunReportsWhatIsFinished) {
  Workload workload;
  for (int i = 0; i < 2000; ++i) workload.requests.push_back(request(0.1 * i, 1000 * (i + 1), 50, 20));
  FakeExecutor executor;
  RecordingObserver observer;
  observer.progress = [](const Progress& p) { return p.steps < 3000; };
  const proto::RunReport report = run(small_config(), workload, executor, observer);
  EXPECT_TRUE(report.stopped_early());
  EXPECT_GT(report.completed(), 0u);
  EXPECT_LT(report.completed(), 2000u);
}

TEST(Engine, SameInputsSameReportByteForByte) {
  SchedulerConfig config = small_config();
  config.schedule_policy = SchedulePolicy::kRandom;
  Workload workload;
  for (int i = 0; i < 100; ++i)
    workload.requests.push_back(request(0.003 * i, 1000 * (i % 9 + 1), 50 + i, 20));
  FakeExecutor a;
  FakeExecutor b;
  RecordingObserver ignored;
  EXPECT_EQ(run(config, workload, a, ignored).SerializeAsString(),
            run(config, workload, b, ignored).SerializeAsString());
}

}  // namespace
}  // namespace tpsim::scheduler
