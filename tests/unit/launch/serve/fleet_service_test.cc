// A server of several replicas behind one router.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/router/router.h"
#include "scheduler/workload/workload.h"
#include "tests/unit/launch/serve/served.h"

namespace tpsim::launch {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

class ServedByAFleet : public Served {
 protected:
  void start_fleet(scheduler::RouterPolicy policy) {
    replicas = 3;
    router.policy = policy;
    info.live.router_policy = "some";
    start();
  }
  HttpAnswer generate(const std::vector<std::uint32_t>& prompt, std::uint32_t tokens = 2) {
    return client().ask(
        "POST", "/generate",
        json{{"input_ids", prompt}, {"sampling_params", {{"max_new_tokens", tokens}}}}.dump());
  }
  // Requests that each replica was given.
  std::vector<std::uint64_t> shares() {
    std::vector<std::uint64_t> shares;
    for (const LiveStatistics& of : fleet->statistics().replicas) shares.push_back(of.accepted_requests);
    return shares;
  }
};

TEST_F(ServedByAFleet, RoundRobinGoesRound) {
  start_fleet(scheduler::RouterPolicy::kRoundRobin);
  EXPECT_EQ(client().ask("GET", "/health_generate").status, 200U);  // no worker's turn
  for (int i = 0; i < 7; ++i) EXPECT_EQ(generate({1, 2, 3}).status, 200U);
  EXPECT_EQ(shares(), (std::vector<std::uint64_t>{3, 2, 2}));
  wait_until_idle();
  const LiveStatistics all = fleet->statistics();
  EXPECT_EQ(all.finished_requests, 7U);
  EXPECT_EQ(all.ranks.size(), 3U);
}

// Among replicas that have nothing to do: choices depend on prompts alone.
TEST_F(ServedByAFleet, TheRouterIsTheOneOfARun) {
  start_fleet(scheduler::RouterPolicy::kCacheAware);
  struct Idle final : scheduler::RoutedReplicas {
    std::vector<std::uint64_t> none = {0, 0, 0};
    std::span<const std::uint64_t> in_flight() const override { return none; }
    Load load(std::size_t) const override { return {}; }
  } idle;
  const auto same = scheduler::make_router(router, replicas);
  std::vector<std::uint64_t> expected(replicas);
  for (std::uint32_t i = 0; i < 12; ++i) {
    const std::vector<std::uint32_t> prompt(20, i % 4);
    scheduler::WorkloadRequest request;
    for (const std::uint32_t id : prompt) request.prompt.append({id, 1});
    ++expected[same->choose(request, i, idle)];
    const HttpAnswer answer = generate(prompt);
    EXPECT_EQ(json::parse(answer.body)["meta_info"]["cached_tokens"].get<int>() > 0, i >= 4) << i;
    ASSERT_EQ(shares(), expected) << i;
  }
}

TEST_F(ServedByAFleet, PagesTellReplicasApart) {
  start_fleet(scheduler::RouterPolicy::kRoundRobin);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(generate({1, 2, 3}).status, 200U);
  wait_until_idle();
  const auto get = [this](const char* path) { return json::parse(client().ask("GET", path).body); };
  const json loads = get("/v1/loads");
  EXPECT_EQ(loads["dp_rank_count"], 3);
  EXPECT_EQ(loads["loads"][2]["dp_rank"], 2);
  EXPECT_EQ(get("/get_load").size(), 3U);
  EXPECT_EQ(get("/get_server_info")["internal_states"].size(), 3U);
  EXPECT_EQ(get("/workers")["total"], 3);
  EXPECT_EQ(get("/workers")["workers"][1]["load"], 0);
  EXPECT_EQ(get("/get_loads")["workers"].size(), 3U);
  EXPECT_EQ(get("/readiness")["healthy_workers"], 3);
  EXPECT_EQ(get("/live/data")["replicas"][0]["accepted"], 2);
  EXPECT_EQ(get("/live/data")["accepted"], 4);
  EXPECT_EQ(get("/live/data?replica=0")["accepted"], 2);
  EXPECT_EQ(get("/live/data?replica=9")["accepted"], 4);
  const std::string metrics = client().ask("GET", "/metrics").body;
  EXPECT_NE(metrics.find("dp_rank=\"2\""), std::string::npos);
  EXPECT_NE(metrics.find("replica=\"1\"} 1.0"), std::string::npos);
  EXPECT_EQ(json::parse(client().ask("POST", "/flush_cache").body)["workers_flushed"], 3);
  info.live.router_policy.clear();
  EXPECT_EQ(client().ask("GET", "/workers").status, 404U);
}

TEST_F(ServedByAFleet, AbortsReachEveryReplica) {
  executor.seconds = 0.05;
  start_fleet(scheduler::RouterPolicy::kRoundRobin);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    clients.back()->send("POST", "/generate",
                         R"({"input_ids": [1], "sampling_params": {"max_new_tokens": 4000}})");
  }
  while (fleet->statistics().accepted_requests < 6) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(shares(), (std::vector<std::uint64_t>{2, 2, 2}));
  EXPECT_EQ(client().ask("POST", "/flush_cache").status, 400U);
  EXPECT_EQ(client().ask("POST", "/abort_request", R"({"abort_all": true})").status, 200U);
  wait_until_idle();
  EXPECT_EQ(fleet->statistics().aborted_requests, 6U);
  for (const LiveStatistics& of : fleet->statistics().replicas) EXPECT_EQ(of.open_requests, 0U);
}

TEST_F(ServedByAFleet, TheRouterKeepsTheFirstTokenBack) {
  router.first_token_seconds = 0.2;
  start_fleet(scheduler::RouterPolicy::kRoundRobin);
  HttpClient one = client();
  const auto began = std::chrono::steady_clock::now();
  const auto waited = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  one.send("POST", "/generate",
           R"({"input_ids": [1], "stream": true, "sampling_params": {"max_new_tokens": 50}})");
  std::string heard;
  while (heard.find("data: ") == std::string::npos) heard += one.receive_some();
  EXPECT_GE(waited(), 0.2);
  EXPECT_LT(waited(), 0.4);
  while (heard.find("data: [DONE]") == std::string::npos) heard += one.receive_some();
  EXPECT_NEAR(waited(), 0.5, 0.15);  // the last one comes as without a router
}

class ServedByPairs : public ServedByAFleet {
 protected:
  bool keeps_prefixes = false;  // of decode servers
  void start_pairs(std::uint64_t decode_pool = 100000) {
    decoders = 2;
    config.disaggregation = {.mode = scheduler::DisaggregationMode::kPrefill, .send_seconds = 3e-4};
    decode.disaggregation = {.mode = scheduler::DisaggregationMode::kDecode,
                             .num_reserved_decode_tokens = 64,
                             .preallocate_seconds = 2e-4};
    decode.disable_radix_cache = !keeps_prefixes;
    decode.max_total_num_tokens = decode_pool;
    link = {.chunk_seconds = 0.02, .token_seconds = 1e-6, .page_list_seconds = 0.005};
    start_fleet(scheduler::RouterPolicy::kRoundRobin);
  }
};

TEST_F(ServedByPairs, OneServerPrefillsAnotherDecodes) {
  start_pairs();
  for (int i = 0; i < 6; ++i) {
    const json answer = json::parse(generate(std::vector<std::uint32_t>(20, i % 3), 4).body);
    EXPECT_EQ(answer["meta_info"]["completion_tokens"], 4);
    EXPECT_EQ(answer["meta_info"]["cached_tokens"], i < 3 ? 0 : 19);
  }
  EXPECT_EQ(shares(), (std::vector<std::uint64_t>{2, 2, 2, 3, 3}));
  wait_until_idle();
  const LiveStatistics all = fleet->statistics();
  EXPECT_EQ(all.accepted_requests, 6U);
  EXPECT_EQ(all.generation_tokens, 24U);
  EXPECT_EQ(all.replicas[0].prefill_steps, 2U);
  EXPECT_EQ(all.replicas[4].prefill_steps, 0U);
  EXPECT_EQ(all.replicas[4].decode_tokens, 9U);  // its first tokens no pass of its own computes
  const json workers = json::parse(client().ask("GET", "/workers").body);
  EXPECT_EQ(workers["stats"], json::parse(R"({"prefill_count": 3, "decode_count": 2, "regular_count": 0})"));
  EXPECT_EQ(workers["workers"][3]["worker_type"], "decode");
  EXPECT_EQ(client().ask("POST", "/flush_cache").status, 200U);
}

// Wherever a request is, on both sides, when its client leaves: what it held is given back, and others are
// served.
class ServedByPairsOfEitherKind : public ServedByPairs, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(DecodeServersKeepPrefixes, ServedByPairsOfEitherKind, testing::Bool());
TEST_P(ServedByPairsOfEitherKind, ClientsLeaveAnywhere) {
  executor.seconds = 0.004;
  keeps_prefixes = GetParam();
  start_pairs(/*decode_pool=*/3000);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 120; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    const std::vector<std::uint32_t> prompt(50 + 37 * i % 700, i % 30);
    clients.back()->send(
        "POST", "/generate",
        json{{"input_ids", prompt}, {"sampling_params", {{"max_new_tokens", 1 + 7 * i % 300}}}}.dump());
    std::this_thread::sleep_for(1ms);
    if (i % 3 == 2) clients[clients.size() - 1 - 5 * i % clients.size()].reset();
  }
  EXPECT_EQ(client().ask("POST", "/abort_request", R"({"abort_all": true})").status, 200U);
  wait_until_idle();
  EXPECT_GT(fleet->statistics().aborted_requests, 40U);
  EXPECT_EQ(generate({1, 2, 3}).status, 200U);
  EXPECT_EQ(client().ask("POST", "/flush_cache").status, 200U);
  wait_until_idle();
  for (const LiveStatistics& of : fleet->statistics().replicas) {
    EXPECT_EQ(of.open_requests, 0U);
    EXPECT_EQ(of.pending_prefill_tokens + of.decode_sum_seq_lens, 0U);
    EXPECT_EQ(of.kv_used_tokens, 0U);
  }
}

TEST_F(ServedByPairs, WhatOneSideCannotTakeIsRefused) {
  start_pairs(/*decode_pool=*/500);
  const HttpAnswer refused = generate(std::vector<std::uint32_t>(450, 1));
  EXPECT_EQ(refused.status, 400U);
  EXPECT_NE(refused.body.find("of the decode server"), std::string::npos) << refused.body;
  EXPECT_EQ(generate(std::vector<std::uint32_t>(400, 1)).status, 200U);
}

}  // namespace
}  // namespace tpsim::launch
