#include "launch/perfetto/run_trace.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>
#include <set>

#include "tests/unit/launch/perfetto/read_trace.h"

namespace tpsim::launch {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

class RunTraceTest : public testing::Test {
 protected:
  RunTraceTest()
      : path_(std::filesystem::path(testing::TempDir()) /
              (std::string("trace_") + testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~RunTraceTest() override { std::filesystem::remove(path_); }

  // What `fill` writes of a run of 4 ranks in two groups.
  template <class Fill>
  ReadTrace trace(Fill fill, TraceWindow window = {}, std::uint64_t most = RunTrace::kMostBytes) {
    OutputFile file(path_, "--trace-out t");
    RunTrace run(file, window, most);
    run.add_replica("replica", 4, 1, {{0, {0, 1, 3}}, {0, {2}}});
    fill(run);
    run.finish();
    cut_at_ = run.cut_at();
    file.commit();
    return read_trace(file_bytes(path_));
  }

  static scheduler::StepRecord step(double start, double seconds) {
    scheduler::StepRecord record;
    record.forward_mode = proto::EXTEND;
    record.start_time = start;
    record.step_time = seconds;
    record.formed_time = start - 0.001;
    record.returned_time = start + seconds / 2;
    record.extend_requests = 2;
    record.extend_tokens = 100;
    record.cached_tokens = 300;
    record.running = 2;
    record.pools[kvcache::kKvPool].held = 400;
    record.pools[kvcache::kKvPool].free = 600;
    return record;
  }

  static scheduler::RequestRecord request(std::uint64_t id, double arrival, double scheduled, double first,
                                          double finish) {
    scheduler::RequestRecord record;
    record.id = id;
    record.state = scheduler::RequestState::kCompleted;
    record.input_tokens = 10;
    record.output_tokens = 5;
    record.arrival_time = arrival;
    record.first_scheduled_time = scheduled;
    record.first_token_time = first;
    record.finish_time = finish;
    return record;
  }

  std::filesystem::path path_;
  double cut_at_ = 0;
};

TEST_F(RunTraceTest, APassIsOnItsRanksAndInsideItWhatItTakes) {
  const std::vector<rank::RankSeconds> seconds = {
      {.attention = 0.002, .gemm = 0.003, .wait = 0.004, .collective = 0.001},
      {.attention = 0.004, .gemm = 0.005, .collective = 0.001}};
  const ReadTrace read = trace([&](RunTrace& run) { run.add_step(step(1, 0.01), seconds); });
  EXPECT_EQ(read.process, "replica");
  EXPECT_EQ(read.names("scheduler"), std::vector<std::string>{"EXTEND"});
  EXPECT_EQ(read.of("scheduler")[0].begin, 999 * kMillisecond);
  EXPECT_EQ(read.of("scheduler")[0].end, 1005 * kMillisecond);
  EXPECT_EQ(read.of("scheduler")[0].arguments.at("cached_tokens"), "300");
  EXPECT_EQ(read.names("ranks 0 to 1, 3"),
            (std::vector<std::string>{"EXTEND", "attention", "gemm", "wait", "collective"}));
  const auto slow = read.of("rank 2");
  ASSERT_EQ(slow.size(), 4U);
  EXPECT_EQ(slow[0].begin, 1000 * kMillisecond);
  EXPECT_EQ(slow[0].end, 1010 * kMillisecond);
  EXPECT_EQ(slow[2].name, "gemm");
  EXPECT_EQ(slow[2].depth, 1U);
  EXPECT_EQ(slow[2].begin, 1004 * kMillisecond);
  EXPECT_EQ(slow[3].end, slow[0].end);
  EXPECT_EQ(read.counters.at("KV tokens held").at(0).value, 400);
  EXPECT_EQ(read.counters.at("prefix hit rate").at(0).value, 75);
}

TEST_F(RunTraceTest, ACounterIsWrittenWhereItChanges) {
  const ReadTrace read = trace([&](RunTrace& run) {
    for (int i = 0; i < 5; ++i) {
      scheduler::StepRecord record = step(1 + i, 0.01);
      record.running = i < 3 ? 2 : 4;
      run.add_step(record, {});
    }
  });
  EXPECT_EQ(read.counters.at("running requests").size(), 2U);
  EXPECT_EQ(read.counters.at("running requests")[1].value, 4);
  EXPECT_FALSE(read.counters.contains("states held"));
}

TEST_F(RunTraceTest, StagesRunWhenTheyRan) {
  OutputFile file(path_, "--trace-out t");
  RunTrace run(file, {});
  run.add_replica("replica", 4, 2, {});
  const std::vector<scheduler::StageTimes> stages = {{1, 1.01, 1.02}, {1.03, 1.05, 1.05}};
  scheduler::StepRecord record = step(1, 0.05);
  record.stages = stages;
  run.add_step(record, {});
  run.finish();
  file.commit();
  const ReadTrace read = read_trace(file_bytes(path_));
  EXPECT_EQ(read.of("ranks 0 to 1 (stage 0)").at(0).end, 1010 * kMillisecond);
  EXPECT_EQ(read.of("ranks 2 to 3 (stage 1)").at(0).begin, 1030 * kMillisecond);
}

TEST_F(RunTraceTest, ARequestAndItsPhases) {
  const ReadTrace read = trace([&](RunTrace& run) { run.add_request(request(7, 1, 1.5, 2, 3)); });
  const auto slices = read.of("requests");
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[0].name, "request 7");
  EXPECT_EQ(slices[0].arguments.at("state"), "completed");
  EXPECT_EQ(std::stod(slices[0].arguments.at("ttft_ms")), 1000);
  EXPECT_EQ(std::stod(slices[0].arguments.at("tpot_ms")), 250);
  EXPECT_EQ(slices[1].name, "waiting");
  EXPECT_EQ(slices[1].end, 1500 * kMillisecond);
  EXPECT_EQ(slices[2].name, "prefill");
  EXPECT_EQ(slices[3].name, "decode");
  EXPECT_EQ(slices[3].begin, 2000 * kMillisecond);
  EXPECT_EQ(slices[3].end, 3000 * kMillisecond);
}

TEST_F(RunTraceTest, ARequestThatIsScheduledAtTheStart) {
  const ReadTrace read = trace([&](RunTrace& run) { run.add_request(request(0, 0, 0, 2, 3)); });
  EXPECT_EQ(read.names("requests"), (std::vector<std::string>{"request 0", "waiting", "prefill", "decode"}));
  EXPECT_EQ(read.of("requests")[2].begin, 0U);
}

TEST_F(RunTraceTest, RetractionsAreInsideTheDecode) {
  const std::vector<scheduler::Interruption> interruptions = {{2.2, 2.5}, {2.7, 0}};
  const ReadTrace read = trace([&](RunTrace& run) {
    scheduler::RequestRecord record = request(0, 1, 1.5, 2, 3);
    record.interruptions = interruptions;
    record.retractions = 2;
    run.add_request(record);
  });
  const auto slices = read.of("requests");
  ASSERT_EQ(slices.size(), 6U);
  EXPECT_EQ(slices[4].name, "retracted");
  EXPECT_EQ(slices[4].depth, 2U);
  EXPECT_EQ(slices[4].begin, 2200 * kMillisecond);
  EXPECT_EQ(slices[4].end, 2500 * kMillisecond);
  EXPECT_EQ(slices[5].end, 3000 * kMillisecond);  // it never came back
}

TEST_F(RunTraceTest, WhatWasRefusedOrStoppedIsThere) {
  const ReadTrace read = trace([&](RunTrace& run) {
    run.add_step(step(1, 4), {});
    scheduler::RequestRecord rejected = request(1, 1, 0, 0, 2);
    rejected.state = scheduler::RequestState::kRejected;
    run.add_request(rejected);
    scheduler::RequestRecord waiting = request(2, 2, 0, 0, 0), decoding = request(3, 1, 2, 3, 0);
    waiting.state = decoding.state = scheduler::RequestState::kUnfinished;
    run.add_request(waiting);
    run.add_request(decoding);
  });
  const auto slices = read.of("requests");
  std::vector<std::string> names;
  for (const auto& slice : slices)
    if (slice.depth == 0) names.push_back(slice.name + " " + slice.arguments.at("state"));
  EXPECT_EQ(names,
            (std::vector<std::string>{"request 1 rejected", "request 3 unfinished", "request 2 unfinished"}));
  for (const auto& slice : slices)
    EXPECT_TRUE((slice.name != "decode" && slice.name != "request 2") || slice.end == 5000 * kMillisecond);
}

// Requests that overlap are on different lanes, as few as there are at a time.
TEST_F(RunTraceTest, LanesAreAsManyAsRequestsAtATime) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> length(0.1, 2);
  struct Interval {
    double begin, end;
  };
  std::vector<Interval> intervals;
  for (int i = 0; i < 2000; ++i) intervals.push_back({0.01 * i, 0.01 * i + length(random)});
  std::sort(intervals.begin(), intervals.end(), [](auto& a, auto& b) { return a.end < b.end; });
  const ReadTrace read = trace([&](RunTrace& run) {
    for (std::size_t i = 0; i < intervals.size(); ++i)
      run.add_request(
          request(i, intervals[i].begin, intervals[i].begin, intervals[i].begin + 0.05, intervals[i].end));
  });
  std::set<std::uint64_t> lanes;
  std::map<std::uint64_t, std::uint64_t> busy_until;
  for (const auto& slice : read.of("requests")) {
    lanes.insert(slice.uuid);
    if (slice.depth > 0) continue;
    EXPECT_GE(slice.begin, busy_until[slice.uuid]);
    busy_until[slice.uuid] = slice.end;
  }
  std::size_t most = 0;
  for (const Interval& one : intervals) {
    std::size_t at_once = 0;
    for (const Interval& other : intervals) at_once += other.begin <= one.begin && one.begin < other.end;
    most = std::max(most, at_once);
  }
  EXPECT_GE(lanes.size(), most);
  EXPECT_LE(lanes.size(), most + most / 4);
}

TEST_F(RunTraceTest, AWindowHoldsWhatHappenedInIt) {
  const ReadTrace read = trace(
      [&](RunTrace& run) {
        for (int i = 0; i < 10; ++i) run.add_step(step(i, 0.5), {});
        run.add_request(request(0, 0, 0.1, 0.2, 1));  // before
        run.add_request(request(1, 1, 1.1, 1.2, 4));  // reaches into it
        run.add_request(request(2, 4, 4.1, 4.2, 9));  // reaches beyond
        run.add_request(request(3, 8, 8.1, 8.2, 9));  // behind
      },
      {3, 6});
  EXPECT_EQ(read.of("scheduler").size(), 3U);
  std::vector<std::string> names;
  for (const auto& slice : read.of("requests"))
    if (slice.depth == 0) names.push_back(slice.name);
  EXPECT_EQ(names, (std::vector<std::string>{"request 1", "request 2"}));
  // Of all prompts since the start of the run, not of the window.
  EXPECT_EQ(read.counters.at("prefix hit rate").at(0).value, 75);
}

TEST_F(RunTraceTest, EndsWhereItIsFull) {
  constexpr std::uint64_t kMost = 1 << 20;
  const ReadTrace read = trace(
      [&](RunTrace& run) {
        for (int i = 0; i < 100000; ++i) run.add_step(step(i, 0.5), {});
        run.add_request(request(0, 0, 0.1, 0.2, 1));
      },
      {}, kMost);
  EXPECT_GT(cut_at_, 1000);
  EXPECT_LT(cut_at_, 100000);
  EXPECT_EQ(read.of("scheduler").size(), static_cast<std::size_t>(cut_at_));
  EXPECT_LT(std::filesystem::file_size(path_), 2 * kMost);
}

// Long runs: names that are many are not kept, packets are not either.
TEST_F(RunTraceTest, ReplicasHaveTheirOwnTracks) {
  const ReadTrace read = trace([&](RunTrace& run) {
    run.add_replica("second", 1, 1, {});
    for (const std::uint32_t replica : {0U, 1U, 1U}) {
      scheduler::StepRecord record = step(1, 0.01);
      record.replica = replica;
      run.add_step(record, {});
    }
    scheduler::RequestRecord on_second = request(7, 1, 1.5, 2, 3);
    on_second.replica = 1;
    run.add_request(on_second);
  });
  EXPECT_EQ(read.names("replica: scheduler").size(), 1U);
  EXPECT_EQ(read.names("second: scheduler").size(), 2U);
  EXPECT_EQ(read.names("second: rank 0").size(), 2U);
  EXPECT_EQ(read.counters.at("second: running requests").size(), 1U);
  EXPECT_EQ(read.names("second: requests").at(0), "request 7");
  EXPECT_TRUE(read.names("replica: requests").empty());
}

TEST_F(RunTraceTest, AChoiceSaysWhatTheRouterSaw) {
  const std::array<std::uint64_t, 2> before = {3, 1};
  const ReadTrace read = trace([&](RunTrace& run) {
    run.add_replica("second", 1, 1, {});
    run.add_choice({.id = 5, .time = 2, .replica = 0, .in_flight = before});
    run.add_choice({.id = 6, .time = 3, .replica = 0, .decode_replica = 1, .in_flight = before});
  });
  ASSERT_EQ(read.names("router: to replica 0"), (std::vector<std::string>{"request 5", "request 6"}));
  const auto choice = read.of("router: to replica 0")[0];
  EXPECT_TRUE(choice.instant);
  EXPECT_EQ(choice.begin, 2000 * kMillisecond);
  EXPECT_EQ(choice.arguments.at("requests_in_flight"), "3");
  EXPECT_EQ(choice.arguments.at("least_in_flight"), "1");
  EXPECT_EQ(read.names("router: to replica 1"), std::vector<std::string>{"request 6"});
  EXPECT_EQ(read.counters.at("router: in flight, replica 0").size(), 1U);
  EXPECT_EQ(read.counters.at("router: in flight, replica 1").at(0).value, 1);
}

TEST_F(RunTraceTest, ChunksOnALinkAndTheirRequestOnItsPrefillServer) {
  const ReadTrace read = trace([&](RunTrace& run) {
    run.add_replica("second", 1, 1, {});
    scheduler::KvSentRecord chunk{.id = 4, .from = 0, .to = 1, .begin = 1, .end = 2, .tokens = 100};
    chunk.arrival_time = 0.25;
    chunk.first_scheduled_time = 0.5;
    run.add_transfer(chunk);
    chunk.begin = 1.5;  // handed over while the first one is under way
    chunk.end = 3;
    chunk.last = true;
    run.add_transfer(chunk);
  });
  const auto chunks = read.of("KV transfers: replica 0 to replica 1");
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_NE(chunks[0].uuid, chunks[1].uuid);
  EXPECT_EQ(chunks[1].arguments.at("tokens"), "100");
  EXPECT_EQ(read.names("replica: requests"),
            (std::vector<std::string>{"request 4", "waiting", "prefill", "transfer"}));
  EXPECT_EQ(read.of("replica: requests")[0].begin, 250 * kMillisecond);
  EXPECT_EQ(read.of("replica: requests")[3].begin, 1500 * kMillisecond);
  EXPECT_EQ(read.of("replica: requests")[0].end, 3000 * kMillisecond);
}

TEST_F(RunTraceTest, TheSameTextIsWrittenOnce) {
  OutputFile file(path_, "--trace-out t");
  PerfettoWriter writer(file);
  const auto name = writer.slice_name("decode");
  EXPECT_EQ(writer.slice_name("decode"), name);
  EXPECT_NE(writer.slice_name("prefill"), name);
  const auto process = writer.add_process(1, "p");
  const auto track = writer.add_track(process, "t", 0);
  const auto category = writer.category("c");
  for (std::uint64_t i = 0; i < 20000; ++i) {
    writer.begin(track, 2 * i, category, name, {});
    writer.end(track, 2 * i + 1);
  }
  writer.finish();
  file.commit();
  const std::string bytes = file_bytes(path_);
  EXPECT_EQ(bytes.size(), writer.bytes());
  EXPECT_EQ(bytes.find("decode"), bytes.rfind("decode"));
  EXPECT_EQ(read_trace(bytes).slices.size(), 20000U);
}

}  // namespace
}  // namespace tpsim::launch
