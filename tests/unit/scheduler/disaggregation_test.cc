// Prefill and decode split: every request is served once whatever the pools are, pages add up on both sides
// after every step, and what each side waits for is what it waits for in SGLang.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rank/parallel/rank_state.h"
#include "scheduler/disaggregation/kv_link.h"
#include "scheduler/engine.h"
#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/random_requests.h"

namespace tpsim::scheduler::disaggregation_test {

constexpr std::uint32_t kReserved = 64;

SchedulerConfig side(DisaggregationMode mode, std::uint64_t tokens, std::uint32_t page_size = 1) {
  SchedulerConfig config;
  config.page_size = page_size;
  config.max_total_num_tokens = tokens / page_size * page_size;
  config.max_running_requests = 20;
  config.context_length = 50000;
  config.chunked_prefill_size = 256;
  config.check_invariants = true;
  config.disaggregation.mode = mode;
  config.disaggregation.num_reserved_decode_tokens = kReserved;
  config.disaggregation.preallocate_seconds = 2e-4;
  config.disaggregation.prebuilt_seconds = 1e-4;
  config.disaggregation.send_seconds = 3e-4;
  config.disaggregation.offload_token_seconds = 1e-6;
  config.disable_radix_cache = mode == DisaggregationMode::kDecode;
  return config;
}

constexpr KvLinkConfig kLink = {.chunk_seconds = 3e-3,
                                .run_seconds = 1e-5,
                                .token_seconds = 1e-6,
                                .page_list_seconds = 5e-4,
                                .notice_seconds = 1e-4};

// Keeps what the ranks of a server would: a batch that they refuse throws.
class StatefulExecutor : public FakeExecutor {
 public:
  explicit StatefulExecutor(const SchedulerConfig& config) {
    states_.reserve(config.data_parallel.size);
    for (std::uint32_t rank = 0; rank < config.data_parallel.size; ++rank)
      states_.emplace_back(rank::RankStateConfig{
          .page_size = config.page_size,
          .num_pages = 2 * static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size) + 64,
          .check = true});
  }
  StepOutcome forward(const proto::ForwardBatch& batch) override {
    const bool ranks = batch.dp_batches_size() > 0;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      const attention::ForwardMetadata metadata =
          states_[rank].apply(ranks ? batch.dp_batches(static_cast<int>(rank)) : batch);
      for (const std::uint32_t tokens : metadata.decode_seq_lens) kv_tokens += tokens;
      decodes += metadata.decode_seq_lens.empty() ? 0 : 1;
    }
    const StepOutcome outcome = FakeExecutor::forward(batch);
    batches.clear();
    return outcome;
  }
  std::uint64_t kv_tokens = 0, decodes = 0;

 private:
  std::vector<rank::RankState> states_;
};

struct Pair {
  SchedulerConfig prefill, decode;
  std::size_t prefills = 1, decoders = 1;
};

struct Served {
  proto::RunReport report;
  std::map<std::uint64_t, RequestRecord> requests;
  std::vector<StepRecord> steps;
  std::uint64_t kv_tokens = 0;                  // attended by all decode passes
  std::map<std::uint64_t, std::uint64_t> sent;  // tokens of each request
};

class Kept : public NoRecords {
 public:
  explicit Kept(Served& served) : served_(served) {}
  void on_request(const RequestRecord& record) override {
    EXPECT_TRUE(served_.requests.emplace(record.id, record).second) << record.id;
  }
  void on_step(const StepRecord& record) override { served_.steps.push_back(record); }
  void on_kv_sent(const KvSentRecord& record) override { served_.sent[record.id] += record.tokens; }

 private:
  Served& served_;
};

Served serve(const Workload& workload, const Pair& pair, LoadConfig load = {}) {
  std::vector<std::unique_ptr<StatefulExecutor>> executors;
  Fleet fleet;
  fleet.link = kLink;
  for (std::size_t i = 0; i < pair.prefills; ++i)
    fleet.servers.push_back(
        {&pair.prefill, executors.emplace_back(std::make_unique<StatefulExecutor>(pair.prefill)).get()});
  for (std::size_t i = 0; i < pair.decoders; ++i)
    fleet.decode.push_back(
        {&pair.decode, executors.emplace_back(std::make_unique<StatefulExecutor>(pair.decode)).get()});
  Served served;
  Kept kept(served);
  served.report = run_workload(fleet, load, WorkloadView(workload), kept);
  for (const auto& executor : executors) served.kv_tokens += executor->kv_tokens;
  return served;
}

// On both sides: the head reads what the prefill server computed.
void draft(Pair& pair) {
  for (SchedulerConfig* side : {&pair.prefill, &pair.decode}) {
    side->speculation.algorithm = SpeculativeAlgorithm::kEagle;
    side->speculation.num_steps = 3;
    side->speculation.num_draft_tokens = 4;
    side->speculation.accepted = AcceptLengths::from_rates(std::vector{0.8, 0.6}, 3, 1, 4);
    side->speculation.follow(side->sglang_release, side->disable_overlap_schedule);
  }
}

// One of 48, of which the last twelve draft.
Pair pair_of(std::uint64_t seed) {
  const std::uint32_t page_size = seed % 3 == 0 ? 16 : 1;
  Pair pair{.prefill = side(DisaggregationMode::kPrefill, 2500, page_size),
            .decode = side(DisaggregationMode::kDecode, seed % 2 == 0 ? 1500 : 6000, page_size),
            .prefills = 1 + seed % 3,
            .decoders = 1 + seed % 2};
  pair.prefill.disable_overlap_schedule = pair.decode.disable_overlap_schedule = seed % 5 == 0;
  if (seed % 4 == 2) pair.decode.disaggregation.num_reserved_decode_tokens = 0;  // retracted as they enter
  if (seed % 6 == 5) pair.decode.max_running_requests = 1;                       // KV is there, and no place
  if (seed >= 36) draft(pair);
  return pair;
}

Workload random_workload(std::uint64_t seed, std::size_t requests, std::uint32_t answer) {
  std::mt19937_64 random(seed);
  Workload workload;
  kvcache::TokenId fresh = 100;
  double time = 0;
  while (workload.requests.size() < requests) {
    WorkloadRequest r;
    time += static_cast<double>(random() % 40) * 1e-3;
    r.arrival_time = time;
    draw_prompt(random, workload.requests, 2000, fresh, r);
    r.max_new_tokens = static_cast<std::uint32_t>(1 + random() % answer);
    draw_answer(random, fresh, r);
    workload.requests.push_back(std::move(r));
  }
  return workload;
}

WorkloadRequest request(std::uint32_t prompt, std::uint32_t answer, double time = 0) {
  static kvcache::TokenId fresh = 1000;
  WorkloadRequest r;
  r.arrival_time = time;
  r.prompt.append({fresh, prompt});
  fresh += prompt + 1;
  r.max_new_tokens = answer;
  return r;
}

TEST(Disaggregation, EveryRequestIsServedOnce) {
  std::uint64_t retractions = 0, waits = 0;
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    Pair pair = pair_of(seed);
    pair.decode.defers_steady_decode = seed % 4 != 1;
    const Workload workload = random_workload(seed, 150, seed % 4 == 0 ? 300 : 40);
    const Served served = serve(workload, pair);
    ASSERT_EQ(served.requests.size(), 150U) << seed;
    std::uint64_t completed = 0;
    for (const auto& [id, record] : served.requests) {
      ASSERT_TRUE(record.prefill_replica);
      EXPECT_LT(*record.prefill_replica, pair.prefills);
      EXPECT_GE(record.replica, pair.prefills);
      if (record.state != RequestState::kCompleted) continue;
      ++completed;
      const WorkloadRequest& asked = workload.requests[id];
      const bool named = !asked.sampling.ignore_eos && !asked.output.empty();
      const std::uint64_t most = named ? asked.output.size() : asked.max_new_tokens;
      EXPECT_LE(record.output_tokens, most);
      // Its KV was computed, sent and noticed before the first token.
      EXPECT_GT(record.first_token_time,
                record.first_scheduled_time + kLink.chunk_seconds + kLink.token_seconds);
      EXPECT_GE(record.finish_time, record.first_token_time);
      waits += record.first_scheduled_time > record.arrival_time + 0.05 ? 1 : 0;
    }
    EXPECT_GT(completed, 100U);
    retractions += served.report.retractions();
    // Rows say what each side did.
    std::uint64_t input = 0, output = 0, steps = 0;
    for (const proto::ReplicaReport& row : served.report.replicas()) {
      EXPECT_EQ(row.role(), row.replica() < pair.prefills ? "prefill" : "decode");
      EXPECT_EQ(row.role() == "prefill" ? row.output_tokens() : row.input_tokens(), 0U);
      input += row.input_tokens();
      output += row.output_tokens();
      steps += row.steps();
    }
    EXPECT_EQ(input, served.report.total_input_tokens());
    EXPECT_EQ(output, served.report.total_output_tokens());
    EXPECT_EQ(steps, served.report.steps());
    const proto::ForwardMode decodes =
        pair.decode.speculation.enabled() ? proto::TARGET_VERIFY : proto::DECODE;
    for (const StepRecord& step : served.steps)
      EXPECT_EQ(step.forward_mode, step.replica < pair.prefills ? proto::EXTEND : decodes);
    EXPECT_EQ(serve(workload, pair).report.SerializeAsString(), served.report.SerializeAsString());
  }
  EXPECT_GT(retractions, 20U);
  EXPECT_GT(waits, 100U);
}

// Each data-parallel rank has queues of its own, and finds the rank of the other side that has its request.
TEST(Disaggregation, DataParallelRanksOnEitherSide) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Pair pair{.prefill = side(DisaggregationMode::kPrefill, 2500),
              .decode = side(DisaggregationMode::kDecode, seed % 2 == 0 ? 2500 : 6000),
              .prefills = 1 + seed % 2,
              .decoders = 1 + seed % 3};
    pair.prefill.data_parallel = {.size = 1 + static_cast<std::uint32_t>(seed % 4),
                                  .load_balance = LoadBalanceMethod::kFollowBootstrapRoom};
    pair.decode.data_parallel.size = 4 - static_cast<std::uint32_t>(seed % 3);
    pair.prefill.disable_overlap_schedule = pair.decode.disable_overlap_schedule = seed % 5 == 0;
    const Workload workload = random_workload(seed, 150, 200);
    const Served served = serve(workload, pair);
    ASSERT_EQ(served.requests.size(), 150U) << seed;
    EXPECT_GT(served.report.completed(), 130U);
    EXPECT_EQ(served.report.completed() + served.report.failed(), 150U);
    for (const auto& [id, record] : served.requests) {
      if (record.state != RequestState::kCompleted) continue;
      EXPECT_GT(record.first_token_time, record.first_scheduled_time + kLink.chunk_seconds);
    }
    EXPECT_EQ(serve(workload, pair).report.SerializeAsString(), served.report.SerializeAsString());
  }
}

// Pages add up on both sides after every step, and the ranks' tables say the same.
TEST(Disaggregation, DecodeServersThatKeepPrefixes) {
  std::uint64_t retractions = 0, sent = 0, sent_without = 0, evicted = 0;
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    Pair pair = pair_of(seed);
    if (seed % 7 == 6) pair.decode.data_parallel.size = 2;
    const Workload workload = random_workload(seed, 150, seed % 4 == 0 ? 300 : 40);
    for (const auto& [id, tokens] : serve(workload, pair).sent) sent_without += tokens;
    pair.decode.disable_radix_cache = false;
    const Served served = serve(workload, pair);
    ASSERT_EQ(served.requests.size(), 150U) << seed;
    EXPECT_GT(served.report.completed(), 100U) << seed;
    for (const auto& [id, record] : served.requests) EXPECT_LE(record.cached_tokens, record.input_tokens);
    for (const auto& [id, tokens] : served.sent) sent += tokens;
    retractions += served.report.retractions();
    for (const proto::ReplicaReport& row : served.report.replicas())
      if (row.role() == "decode") evicted += row.evicted_tokens();
    pair.decode.defers_steady_decode = false;
    EXPECT_EQ(serve(workload, pair).report.SerializeAsString(), served.report.SerializeAsString()) << seed;
  }
  EXPECT_LT(sent, sent_without * 9 / 10);
  EXPECT_GT(retractions, 20U);
  EXPECT_GT(evicted, 10000U);
}

// What the decode server has of a prompt, whole pages of it, an earlier answer's among them, is not sent; of
// one that it has to the end the last message alone goes.
TEST(Disaggregation, WhatADecodeServerHasIsNotSent) {
  Pair pair{.prefill = side(DisaggregationMode::kPrefill, 40000, 16),
            .decode = side(DisaggregationMode::kDecode, 40000, 16)};
  pair.decode.disable_radix_cache = false;
  Workload workload;
  WorkloadRequest first = request(160, 50);
  first.output.append({500000, 50});
  WorkloadRequest next = first;  // the answer, and then 40 more
  next.arrival_time = 10;
  next.prompt.append({500000, 50});
  next.prompt.append({600000, 40});
  WorkloadRequest same = first;
  same.arrival_time = 20;
  workload.requests = {first, next, same};
  const Served served = serve(workload, pair);
  EXPECT_EQ(served.sent.at(0), 160U);
  EXPECT_EQ(served.sent.at(1), 250U - 208);  // 209 tokens have KV
  EXPECT_EQ(served.sent.at(2), 0U);
  EXPECT_EQ(served.requests.at(1).cached_tokens, 208U);  // 160 of them on the prefill server, too
  EXPECT_EQ(served.requests.at(2).cached_tokens, 160U);
  EXPECT_LT(served.requests.at(2).ttft(), served.requests.at(0).ttft());
  EXPECT_EQ(served.report.completed(), 3U);
}

// Counted decode passes are those of passes one by one.
TEST(Disaggregation, SteadyDecodeChangesNothing) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Pair pair{.prefill = side(DisaggregationMode::kPrefill, 3000),
              .decode = side(DisaggregationMode::kDecode, 1800)};
    const Workload workload = random_workload(seed, 120, 200);
    const Served counted = serve(workload, pair);
    pair.decode.defers_steady_decode = false;
    const Served each = serve(workload, pair);
    EXPECT_EQ(counted.report.SerializeAsString(), each.report.SerializeAsString());
    EXPECT_EQ(counted.kv_tokens, each.kv_tokens);
  }
}

// A decode pass attends to all tokens but the last of each request, retracted ones too: nothing is computed
// anew.
TEST(Disaggregation, RetractedRequestsComeBackThroughTheHost) {
  const Pair pair{.prefill = side(DisaggregationMode::kPrefill, 4000),
                  .decode = side(DisaggregationMode::kDecode, 1000)};
  Workload workload;
  for (int i = 0; i < 8; ++i) workload.requests.push_back(request(60, 300));
  const Served served = serve(workload, pair);
  EXPECT_GT(served.report.retractions(), 2U);
  EXPECT_EQ(served.report.completed(), 8U);
  std::uint64_t extended = 0;
  for (const StepRecord& step : served.steps) extended += step.extend_tokens;
  EXPECT_EQ(extended, 8U * 60);
  // A token that was in flight when its request was retracted is decoded again.
  const std::uint64_t once = 8 * (299 * 60 + 299 * 300 / 2);
  EXPECT_GE(served.kv_tokens, once);
  EXPECT_LE(served.kv_tokens, once + served.report.retractions() * 360);
}

// The second waits for the end of the first, for the decode server's pool has room for one and its reserve;
// the prefill server is idle meanwhile.
TEST(Disaggregation, FullDecodeServerHoldsThePrefillServerBack) {
  const Pair pair{.prefill = side(DisaggregationMode::kPrefill, 4000),
                  .decode = side(DisaggregationMode::kDecode, 600)};
  Workload workload;
  workload.requests = {request(400, 100), request(400, 10)};
  const Served served = serve(workload, pair);
  EXPECT_GE(served.requests.at(1).first_scheduled_time, served.requests.at(0).finish_time);
}

// The prefill server computes while its KV is on its way: the last chunk alone delays the first token.
TEST(Disaggregation, ChunksAreSentWhileTheNextIsComputed) {
  Pair pair{.prefill = side(DisaggregationMode::kPrefill, 40000),
            .decode = side(DisaggregationMode::kDecode, 40000)};
  Workload one, four;
  one.requests = {request(256, 2)};
  four.requests = {request(1024, 2)};
  const double pass = 0.01 + 256e-5,
               sent = kLink.chunk_seconds + kLink.run_seconds + 256 * kLink.token_seconds;
  const auto ttft = [](const Served& served) { return served.requests.at(0).ttft(); };
  EXPECT_NEAR(ttft(serve(four, pair)) - ttft(serve(one, pair)), 3 * pass, 1e-3);
  EXPECT_GT(ttft(serve(one, pair)), pass + sent);
}

TEST(Disaggregation, RefusedAtOnce) {
  const Pair pair{.prefill = side(DisaggregationMode::kPrefill, 1000, 16),
                  .decode = side(DisaggregationMode::kDecode, 320, 16)};
  Workload workload;
  workload.requests = {request(900, 5), request(990, 5), request(300, 5), request(200, 5)};
  const Served served = serve(workload, pair);
  EXPECT_EQ(served.requests.at(3).state, RequestState::kCompleted);
  for (const std::uint64_t id : {0, 1, 2})
    EXPECT_EQ(served.requests.at(id).state, RequestState::kRejected) << id;
}

TEST(Disaggregation, WarmUpLeavesNothing) {
  const Pair pair{.prefill = side(DisaggregationMode::kPrefill, 4000),
                  .decode = side(DisaggregationMode::kDecode, 4000)};
  Workload workload;
  workload.requests = {request(400, 100), request(300, 10, 0.01)};
  LoadConfig load;
  load.warmup_requests = 2;
  load.flush_cache = true;
  const Served cold = serve(workload, pair), warm = serve(workload, pair, load);
  EXPECT_EQ(warm.requests.size(), 2U);
  EXPECT_DOUBLE_EQ(warm.requests.at(1).finish_time, cold.requests.at(1).finish_time);
}

TEST(KvLinks, ChunksTakeTurnsOnTheWiresOfBothEnds) {
  KvLinks links({.chunk_seconds = 1, .run_seconds = 0.5, .token_seconds = 0.1}, 2, 2);
  EXPECT_DOUBLE_EQ(links.send(0, 0, 0, 10, 1), 2.5);
  EXPECT_DOUBLE_EQ(links.send(0, 1, 0, 10, 1), 3.5);  // the same wire out
  EXPECT_DOUBLE_EQ(links.send(1, 1, 0, 10, 3), 4.5);  // the same wire in
  EXPECT_DOUBLE_EQ(links.send(1, 0, 10, 10, 1), 12.5);
  links.restart_clock();
  EXPECT_DOUBLE_EQ(links.send(0, 0, 0, 10, 1), 2.5);
}

}  // namespace tpsim::scheduler::disaggregation_test
