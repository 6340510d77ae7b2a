#include "launch/deployment.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/launch/parse.h"

namespace tpsim::launch {
namespace {

std::vector<std::string> with(std::vector<std::string> extra, bool compare = false) {
  std::vector<std::string> words = {"--model-path", "llama-3.1-70b", "--hardware",
                                    "h200-sxm",     "--trace",       "t"};
  if (std::find(extra.begin(), extra.end(), "--tp") == extra.end()) words.insert(words.end(), {"--tp", "8"});
  if (compare) words.insert(words.end(), {"--attention-backends", "fa3,torch_native,flashinfer+fa3"});
  words.insert(words.end(), extra.begin(), extra.end());
  return words;
}

Deployment resolve(std::vector<std::string> extra) {
  return resolve_deployments(parse(with(extra)), false).at(0);
}

std::string refused(std::vector<std::string> extra) {
  try {
    resolve(std::move(extra));
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Deployment, ChoosesWhatSglangWouldForEightH200s) {
  const Deployment deployment = resolve({});
  EXPECT_EQ(deployment.backends.name(), "fa3");
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  EXPECT_EQ(config.page_size, 1u);
  EXPECT_EQ(config.chunked_prefill_size, 8192u);
  EXPECT_EQ(config.max_prefill_tokens, 16384u);
  EXPECT_EQ(config.context_length, 131072u);
  EXPECT_EQ(config.max_running_requests, 4096u);
  ASSERT_EQ(config.cuda_graph_bs.size(), 52u);
  EXPECT_EQ(config.cuda_graph_bs.back(), 512u);
  // 80 layers, one KV head of 128 a rank, bf16; most of 8 x 141 GB less 141 GB of weights.
  EXPECT_EQ(deployment.ranks.state.kv_bytes_per_token, 80u * 2 * 128 * 2);
  EXPECT_GT(config.max_total_num_tokens, 2'500'000u);
  EXPECT_LT(config.max_total_num_tokens, 3'200'000u);
  ASSERT_EQ(deployment.ranks.ranks.size(), 8u);
  EXPECT_EQ(deployment.ranks.ranks[7].q_heads(0), 56u);
  EXPECT_EQ(deployment.ranks.ranks[7].kv_heads(0), 7u);
}

TEST(Deployment, EveryOptionIsPrintable) {
  const Deployment deployment = resolve({"--page-size", "64", "--rank-slowdown", "3:1.5"});
  const auto& args = deployment.header.server_args();
  EXPECT_EQ(args.at("page_size"), "64");
  EXPECT_EQ(args.at("tp_size"), "8");
  EXPECT_EQ(args.at("decode_attention_backend"), "fa3");
  EXPECT_EQ(args.at("schedule_policy"), "fcfs");
  EXPECT_EQ(args.at("kv_cache_dtype"), "bfloat16");
  EXPECT_EQ(args.at("rank_slowdown"), "3:1.5");
  EXPECT_EQ(args.at("max_total_tokens"), std::to_string(deployment.scheduler.max_total_num_tokens));
  EXPECT_EQ(deployment.scheduler.max_total_num_tokens % 64, 0u);
  EXPECT_DOUBLE_EQ(deployment.ranks.slowdown.at(3), 1.5);
}

TEST(Deployment, FlagsOfOneSideLeaveTheOtherToTheDefault) {
  EXPECT_EQ(resolve({"--prefill-attention-backend", "flashinfer"}).backends.name(), "flashinfer+fa3");
  EXPECT_EQ(
      resolve({"--attention-backend", "triton", "--decode-attention-backend", "flashinfer"}).backends.name(),
      "triton+flashinfer");
}

TEST(Deployment, ComparesInTheOrderGiven) {
  const std::vector<Deployment> all = resolve_deployments(parse(with({}, true), true), true);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].header.backend(), "flashinfer+fa3");
  EXPECT_TRUE(all[1].scheduler.cuda_graph_bs.empty()) << "torch_native cannot be captured";
  EXPECT_FALSE(all[2].scheduler.cuda_graph_bs.empty());
  EXPECT_NE(all[0].configuration_hash(), all[1].configuration_hash());
  EXPECT_EQ(all[0].configuration_hash(),
            resolve_deployments(parse(with({}, true), true), true)[0].configuration_hash());
}

TEST(Deployment, ChunksAndGraphsCanBeSwitchedOff) {
  const Deployment deployment = resolve({"--chunked-prefill-size", "-1", "--disable-cuda-graph"});
  EXPECT_EQ(deployment.scheduler.chunked_prefill_size, 0u);
  EXPECT_TRUE(deployment.scheduler.cuda_graph_bs.empty());
  EXPECT_EQ(deployment.header.server_args().at("chunked_prefill_size"), "-1");
  EXPECT_EQ(deployment.header.server_args().at("disable_cuda_graph"), "true");
}

TEST(Deployment, GraphsEndAtTheRequestsThatCanRun) {
  EXPECT_EQ(resolve({"--max-running-requests", "20"}).scheduler.cuda_graph_bs,
            (std::vector<std::uint32_t>{1, 2, 4, 8, 12, 16, 20}));
}

TEST(Deployment, Fp8CacheHoldsTwiceAsMuch) {
  const double bf16 = static_cast<double>(resolve({}).scheduler.max_total_num_tokens);
  const double fp8 =
      static_cast<double>(resolve({"--kv-cache-dtype", "fp8_e4m3"}).scheduler.max_total_num_tokens);
  EXPECT_NEAR(fp8 / bf16, 2.0, 1e-4);
}

TEST(Deployment, APoolLargerThanTheMemoryIsCutAndSaidSo) {
  const Deployment deployment = resolve({"--max-total-tokens", "999999999"});
  EXPECT_LT(deployment.scheduler.max_total_num_tokens, 3'200'000u);
  ASSERT_FALSE(deployment.notes.empty());
  EXPECT_NE(deployment.notes.back().find("--max-total-tokens 999999999"), std::string::npos);
  EXPECT_EQ(resolve({"--max-total-tokens", "1000", "--page-size", "64"}).scheduler.max_total_num_tokens,
            960u);
}

TEST(Deployment, Refusals) {
  EXPECT_EQ(refused({"--chunked-prefill-size", "100", "--page-size", "64"}),
            "--chunked-prefill-size 100: must be a multiple of --page-size 64");
  EXPECT_EQ(refused({"--max-total-tokens", "10", "--page-size", "64"}),
            "--max-total-tokens 10: is less than one page of --page-size 64");
  EXPECT_EQ(refused({"--context-length", "200000"}),
            "--context-length 200000: llama-3.1-70b was made for at most 131072 tokens");
  EXPECT_EQ(refused({"--max-running-requests", "100000"}),
            "--max-running-requests 100000: at most 65535 are simulated");
  EXPECT_NE(refused({"--decode-attention-backend", "fa33"}).find("--decode-attention-backend fa33"),
            std::string::npos);
  EXPECT_NE(refused({"--prefill-attention-backend", "trition"}).find("did you mean triton?"),
            std::string::npos);
  EXPECT_NE(
      refused({"--attention-backend", "triton", "--kv-cache-dtype", "fp8_e4m3"}).find("--kv-cache-dtype"),
      std::string::npos);
  EXPECT_NE(refused({"--rank-slowdown", "8:1.5"}).find("--rank-slowdown 8:1.5"), std::string::npos);
  EXPECT_NE(refused({"--tp", "3"}).find("--tp 3"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
