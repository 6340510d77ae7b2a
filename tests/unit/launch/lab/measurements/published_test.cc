// Published runs of SGLang's benchmark become loads: what the launch line says is asked, with the lengths of
// the columns, and what cannot be asked says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr const char* kColumns =
    "id,model,gpu,launch,bench,dataset,input_len,output_len,range_ratio,num_prompts,max_concurrency,request_"
    "rate,"
    "mean_ttft_ms,median_ttft_ms,median_tpot_ms,output_throughput,total_input_tokens,total_output_tokens,"
    "accept_length\n";

MeasuredLoad load_of(const std::string& row) {
  return read_measurements(kColumns + row + "\n", "published.csv", {}).at(0);
}

bool has(const MeasuredLoad& load, const std::vector<std::string>& words) {
  return std::search(load.flags.begin(), load.flags.end(), words.begin(), words.end()) != load.flags.end();
}

TEST(Published, TheLaunchLineIsAskedAsItStands) {
  const MeasuredLoad load = load_of(
      "run-1,org/Model,H200,\"SGLANG_X=1 python3 -m sglang.launch_server --model-path org/Model --tp=4 "
      "--deepep-config '{\"\"a\"\":{\"\"b\"\":96}}' --chunked-prefill-size "
      "32768\",bench,random,1000,500,0.5,80,16,inf,"
      "120.5,100,9.5,1500,,,");
  EXPECT_EQ(load.refusal, "");
  EXPECT_EQ(load.id, "run-1");
  EXPECT_EQ(load.model, "Model");
  EXPECT_EQ(load.tp, 4U);
  EXPECT_TRUE(has(load, {"--model-path", "org/Model", "--hardware", "H200", "--tp-size", "4"}));
  EXPECT_TRUE(has(load, {"--deepep-config", "{\"a\":{\"b\":96}}", "--chunked-prefill-size", "32768"}));
  EXPECT_TRUE(has(load, {"--random-input-len", "1000", "--random-output-len", "500", "--random-range-ratio",
                         "0.5", "--num-prompts", "80"}));
  EXPECT_TRUE(has(load, {"--max-concurrency", "16"}));
  EXPECT_EQ(load.measured.ttft_ms, 100);  // medians where there are
  EXPECT_EQ(load.ttft, Statistic::kMedian);
  EXPECT_EQ(load.measured.tpot_ms, 9.5);
  EXPECT_EQ(load.measured.output_throughput, 1500);
  EXPECT_FALSE(load.measured.duration_s);
}

TEST(Published, LengthsOfShareGptSpreadAsAnExponential) {
  const MeasuredLoad load =
      load_of("a,m,H200,sglang serve --model m,bench,sharegpt,,,,1000,1,inf,,,,,217003,202009,2.5");
  EXPECT_EQ(load.refusal, "");
  ASSERT_TRUE(load.workload);
  EXPECT_TRUE(has(load, {"--trace", load.workload->name, "--request-rate", "inf"}));
  std::vector<std::uint64_t> answers;
  std::uint64_t input = 0, output = 0;
  for (const scheduler::WorkloadRequest& request : load.workload->requests) {
    input += request.prompt.size();
    output += request.max_new_tokens;
    answers.push_back(request.max_new_tokens);
  }
  EXPECT_NEAR(static_cast<double>(input), 217000, 500);
  EXPECT_NEAR(static_cast<double>(output), 202000, 500);
  std::ranges::sort(answers);
  EXPECT_NEAR(static_cast<double>(answers[500]), 202 * 0.71, 2);
  EXPECT_NEAR(static_cast<double>(answers.back()), 202 * 5, 30);
  EXPECT_EQ(load.accept_lens, (std::vector<std::pair<std::uint32_t, double>>{{0, 2.5}}));
}

TEST(Published, SumsWithoutRemainderAreEqualLengths) {
  const MeasuredLoad load =
      load_of("a,m,H200,sglang serve --model m,bench,sharegpt,,,,10,1,inf,,,,,1000,2000,");
  ASSERT_TRUE(load.workload);
  for (const scheduler::WorkloadRequest& request : load.workload->requests) {
    EXPECT_EQ(request.prompt.size(), 100U);
    EXPECT_EQ(request.max_new_tokens, 200U);
  }
}

TEST(Published, WithoutAnAcceptanceOnlyFirstTokensAreCompared) {
  const std::string row =
      ",H200,sglang serve --model m --speculative-algorithm EAGLE,bench,random,10,5,0,8,1,inf,"
      "120.5,,3.5,900,,,";
  const MeasuredLoad load = load_of("a,GLM-5.2" + row);
  EXPECT_TRUE(has(load, {"--speculative-accept-rates", "0.75,0.6,0.5"}));
  EXPECT_FALSE(load.measured.tpot_ms);
  EXPECT_FALSE(load.measured.output_throughput);
  EXPECT_EQ(load.measured.ttft_ms, 120.5);
  EXPECT_EQ(load_of("a,m" + row + "2.5").measured.tpot_ms, 3.5);
}

TEST(Published, ManyChatsAtOnceWaitForTheEndpoint) {
  const std::string row =
      "a,m,H200,sglang serve --model m,vllm bench serve --backend openai-chat,random,100,4,1,";
  EXPECT_TRUE(has(load_of(row + "10,,inf,,,,,1000,40,"), {"--tokenize-us", "61.5"}));
  EXPECT_FALSE(has(load_of(row + "10,2,inf,,,,,1000,40,"), {"--tokenize-us"}));
}

TEST(Published, ReleasesThatAreNotNamedAreTheModelsFirst) {
  const std::string columns =
      "id,sglang_version,model,gpu,launch,bench,dataset,input_len,output_len,num_prompts\n";
  const auto release = [&](const std::string& version, const std::string& model) {
    const std::vector<std::string> flags =
        read_measurements(columns + "a," + version + ",org/" + model + ",H200,sglang serve --model org/" +
                              model + ",bench,random,10,5,8\n",
                          "published.csv", {})[0]
            .flags;
    const auto at = std::ranges::find(flags, "--sglang-version");
    return at == flags.end() ? "" : at[1];
  };
  EXPECT_EQ(release("main branch", "Qwen3.5-397B-A17B"), "0.5.8");  // the nearest that is known of 0.5.9
  EXPECT_EQ(release("0.5.16", "Qwen3.5-397B-A17B"), "0.5.16");
  EXPECT_EQ(release("0.0.0.dev1+g1", "LFM2.5-1.2B-Instruct"), "0.5.12");
  EXPECT_EQ(release("", "m"), "");
}

TEST(Published, RunsThatCannotBeWhatTheySayAreRefused) {
  const std::string columns =
      "id,sglang_version,model,gpu,launch,bench,dataset,input_len,output_len,num_prompts\n";
  const std::string row = ",org/Kimi-K2.5,H200,sglang serve --model org/Kimi-K2.5,bench,random,10,5,8\n";
  const std::vector<MeasuredLoad> loads =
      read_measurements(columns + "a,0.5.6.post2" + row + "b,0.5.9" + row, "published.csv", {});
  EXPECT_NE(loads[0].refusal.find("0.5.9"), std::string::npos);
  EXPECT_EQ(loads[1].refusal, "");
}

TEST(Published, TheMeanWhereThereIsNoMedian) {
  const MeasuredLoad load =
      load_of("a,m,H200,sglang serve --model m,bench,random,10,5,0,8,1,inf,120.5,,,,,,");
  EXPECT_EQ(load.measured.ttft_ms, 120.5);
  EXPECT_EQ(load.ttft, Statistic::kMean);
}

TEST(Published, APageThatDoesNotSayWhichItHasHasMeans) {
  const std::string columns =
      "id,model,gpu,launch,bench,dataset,input_len,output_len,num_prompts,median_tpot_ms,notes\n";
  const std::vector<MeasuredLoad> loads = read_measurements(
      columns + "a,m,H200,sglang serve,b,random,10,5,8,2.5,mean or median not said; taken as median\n" +
          "b,m,H200,sglang serve,b,random,10,5,9,2.5,medians\n",
      "published.csv", {});
  EXPECT_EQ(loads[0].measured.tpot_ms, 2.5);
  EXPECT_EQ(loads[0].tpot, Statistic::kMean);
  EXPECT_EQ(loads[1].tpot, Statistic::kMedian);
}

TEST(Published, ADurationThatHoldsCompilesIsNotCompared) {
  const std::string columns =
      "id,model,gpu,launch,bench,dataset,input_len,output_len,num_prompts,max_concurrency,mean_ttft_ms,"
      "median_"
      "ttft_ms,duration_s,output_throughput\n";
  const std::vector<MeasuredLoad> loads =
      read_measurements(columns + "a,m,H200,sglang serve --model m,b,random,10,5,10,1,3709,53,65,64\n" +
                            "b,m,H200,sglang serve --model m,b,random,10,5,10,1,60,53,65,64\n" +
                            "c,m,H200,sglang serve --model m,b,random,10,5,10,2,3709,53,65,64\n",
                        "published.csv", {});
  EXPECT_FALSE(loads[0].measured.output_throughput || loads[0].measured.duration_s);
  EXPECT_EQ(loads[0].measured.ttft_ms, 53);
  EXPECT_EQ(loads[1].measured.duration_s, 65);
  EXPECT_EQ(loads[2].measured.output_throughput, 64);
}

// --enable-dp-attention without --dp-size changes nothing, so a and b ask one server the same.
TEST(Published, RunsThatContradictEachOtherAreRefused) {
  const std::string columns =
      "id,source,model,gpu,launch,bench,dataset,input_len,output_len,num_prompts,output_throughput\n";
  const auto refusals = [&](const std::string& first, const std::string& second,
                            const std::string& throughput) {
    const std::string row = ",b,random,10,5,8,";
    std::vector<std::string> out;
    for (const MeasuredLoad& load :
         read_measurements(columns + "a,page#1,m,H200,sglang serve --model m" + first + row + "100\n" +
                               "b,page#2,m,H200,sglang serve --model m" + second + row + throughput + "\n",
                           "published.csv", {}))
      out.push_back(load.refusal);
    return out;
  };
  EXPECT_EQ(refusals("", " --enable-dp-attention", "130")[0],
            "contradicts b, which asks the same of the same server: 100 and 130 tokens a second");
  EXPECT_EQ(refusals("", " --enable-dp-attention", "130")[1],
            "contradicts a, which asks the same of the same server: 100 and 130 tokens a second");
  EXPECT_EQ(refusals("", " --enable-dp-attention", "120")[1], "");
  EXPECT_EQ(refusals("", " --enable-dp-attention --dp-size 2", "130")[1], "");
}

// Runs of a page with one launch line met one server, and prompts of equal seeds begin alike.
TEST(Published, EarlierRunsOfAPageLeaveTheirPromptsInTheCache) {
  const std::string columns =
      "id,source,model,gpu,launch,bench,dataset,input_len,output_len,range_ratio,num_prompts,max_"
      "concurrency\n";
  const std::string row = ",m,H200,sglang serve --model m,";
  const std::vector<MeasuredLoad> loads = read_measurements(
      columns + "a,page#1" + row + "bench,random,1000,500,0,10,1\n" + "b,page#2" + row +
          "bench --warmup-requests 3,random,8000,500,,80,16\n" + "c,other#3" + row +
          "bench,random,10,5,0,8,1\n" + "d,page#4" + row + "bench --flush-cache,random,10,5,0,8,1\n" +
          "e,page#5" + row + "bench,random,10,5,0,8,1\n",
      "published.csv", {});
  EXPECT_TRUE(has(loads[0], {"--warmup-requests", "1"}));
  EXPECT_FALSE(has(loads[0], {"--random-runs-before"}));
  EXPECT_TRUE(has(loads[1], {"--warmup-requests", "3", "--random-runs-before", "1000:0:10"}));
  EXPECT_FALSE(has(loads[2], {"--random-runs-before"}));
  EXPECT_TRUE(has(loads[3], {"--flush-cache"}));
  EXPECT_FALSE(has(loads[3], {"--random-runs-before"}));
  EXPECT_TRUE(has(loads[4], {"--random-runs-before", "10:0:8"}));
}

TEST(Published, WhatWasNotPublishedIsARefusal) {
  EXPECT_NE(load_of("a,m,,sglang serve --model m,b,random,1,1,0,1,1,inf,,,,,,,").refusal.find("GPU"),
            std::string::npos);
  EXPECT_NE(load_of("a,m,H200,,b,random,1,1,0,1,1,inf,,,,,,,").refusal.find("launch line"),
            std::string::npos);
  EXPECT_NE(load_of("a,m,H200,sglang serve --model m,b,sharegpt,,,,1,1,inf,,,,,,,").refusal.find("lengths"),
            std::string::npos);
  EXPECT_THROW(load_of("a,m,H200,sglang serve --model 'm,b,random,1,1,0,1,1,inf,,,,,,,"), UserError);
  EXPECT_NE(load_of("a,m,H200,sglang serve --tp $n,b,random,1,1,0,1,1,inf,,,,,,,").refusal.find("--tp $n"),
            std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
