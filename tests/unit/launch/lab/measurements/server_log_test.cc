// The log of a server alone, and what SGLang's benchmark writes.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

std::string corpus(const std::string& name) {
  std::ifstream file(std::string(TPSIM_SOURCE_DIR) + "/tests/fuzz/corpus/measurements/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<MeasuredLoad> read(const std::string& text, const std::string& name) {
  return read_measurements(text, name, {.traces = "/nowhere", .hardware = "h200-sxm"});
}

std::string complaint(const std::string& text, const std::string& name) {
  try {
    read(text, name);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ServerArgsText, IsPythonsTextOfADataclass) {
  const nlohmann::json args = read_server_args(
      R"(model_path='/m/a, b', tp_size=4, mem=0.9, graphs=[1, 2], of={'k': (1, 2)}, on=True, none=None, said="it's", w='\'x\''))",
      {"log", 1});
  EXPECT_EQ(args.at("model_path"), "/m/a, b");
  EXPECT_EQ(args.at("tp_size"), 4);
  EXPECT_EQ(args.at("mem"), 0.9);
  EXPECT_TRUE(args.at("graphs").is_null());
  EXPECT_TRUE(args.at("none").is_null());
  EXPECT_EQ(args.at("on"), true);
  EXPECT_EQ(args.at("said"), "it's");
  EXPECT_EQ(args.at("w"), "'x'");
  for (const char* cut : {"model_path='/m", "a=[1, 2", "a", "a=1, b"})
    EXPECT_THROW(read_server_args(cut, {"log", 1}), UserError) << cut;
}

TEST(ServerLog, TellsServerAndRequests) {
  const std::vector<MeasuredLoad> loads = read(corpus("server.txt"), "server.log");
  ASSERT_EQ(loads.size(), 1U);
  const MeasuredLoad& load = loads.front();
  EXPECT_EQ(load.refusal, "");
  EXPECT_EQ(load.model, "llama-3.1-8b");
  EXPECT_EQ(load.backend, "fa3");
  EXPECT_EQ(load.pool_tokens, 906051U);
  EXPECT_EQ(load.batches.size(), 9U);
  EXPECT_TRUE(has_flag(load.flags, "--trace"));
  ASSERT_TRUE(load.workload);
  const auto& requests = load.workload->requests;
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].prompt.size(), 300U);
  EXPECT_EQ(requests[1].prompt.size(), 4096U);
  EXPECT_EQ(requests[2].prompt.size(), 4196U);  // the chunk was full: its last prompt went on
  EXPECT_EQ(requests[0].max_new_tokens, 5U);    // the prefill's, and four decode steps; then the oldest ended
  EXPECT_EQ(requests[1].max_new_tokens, 5U);
  EXPECT_EQ(requests[0].arrival_time, 0);
  EXPECT_NEAR(requests[1].arrival_time, 1 / 200.0, 1e-9);
}

TEST(ServerLog, RefusesWhatDoesNotTell) {
  const std::string log = corpus("server.txt");
  EXPECT_NE(complaint(log.substr(log.find("[2026-11-21 17:31:44")), "x.log").find("server_args"),
            std::string::npos);
  std::string interval = log;
  interval.replace(interval.find("interval=1"), 10, "interval=40");
  EXPECT_NE(complaint(interval, "x.log").find("--decode-log-interval 1"), std::string::npos);
  EXPECT_NE(complaint("warning\n", "x.log").find("server_args"), std::string::npos);
  std::string cached = log;
  for (std::size_t at = 0; (at = cached.find("#cached-token: 0", at)) != std::string::npos; ++at)
    cached.replace(at, 16, "#cached-token: 900");
  EXPECT_NE(read(cached, "x.log").front().refusal.find("cached"), std::string::npos);
}

TEST(BenchServing, LinesAreLoads) {
  const std::vector<MeasuredLoad> loads = read(corpus("bench_serving.jsonl"), "b.jsonl");
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].refusal, "");
  ASSERT_TRUE(loads[0].workload);
  EXPECT_EQ(loads[0].workload->requests.size(), 2U);
  EXPECT_NEAR(*loads[0].measured.ttft_ms, 20.5, 1e-9);
  EXPECT_NEAR(*loads[0].measured.tpot_ms, 1e3 * 0.03 / 14, 1e-9);
  EXPECT_EQ(loads[0].measured.duration_s, 1.5);
  EXPECT_TRUE(has_flag(loads[0].flags, "--max-concurrency"));
  EXPECT_NE(loads[1].refusal.find("--output-details"), std::string::npos);
  const std::string text = corpus("bench_serving.jsonl");
  std::string lists = text;
  lists.replace(lists.find("[0.02, 0.021]"), 13, "[0.02]");
  EXPECT_TRUE(complaint(lists, "b.jsonl").starts_with("b.jsonl:1: ")) << complaint(lists, "b.jsonl");
  std::string account = text;
  account.replace(account.find("\"server_info\""), 13, "\"server_spin\"");
  EXPECT_NE(complaint(account, "b.jsonl").find("b.info.json"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
