// Files of measurements become loads: what was sent is what is offered, figures are those of the rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "launch/lab/measurements/server_batches.h"
#include "proto/base/error.h"
#include "tests/unit/scheduler/workload/test_files.h"

namespace tpsim::launch {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

constexpr const char* kHeader =
    "server,model,tp,prefill_attention_backend,decode_attention_backend,kv_cache_dtype,load,request,sent_s,"
    "first_token_s,last_token_s,input_tokens,output_tokens,cached_tokens,arrival_s,other_flags\n";

std::string row(const std::string& load, const MeasuredRequest& request, const std::string& flags = "") {
  return fmt::format("srv,llama-3.1-8b,2,fa3,fa3,auto,{},{},{:.6f},{:.6f},{:.6f},{},{},{},,{}\n", load,
                     request.request, request.sent_s, request.first_token_s, request.last_token_s,
                     request.input_tokens, request.output_tokens, request.cached_tokens, flags);
}

std::vector<MeasuredLoad> read(const std::string& text, const MeasurementOptions& options = {}) {
  return read_measurements(text, "m.csv", options);
}

bool has_pair(const MeasuredLoad& load, const std::string& flag, const std::string& value) {
  for (std::size_t i = 0; i + 1 < load.flags.size(); ++i)
    if (load.flags[i] == flag) return load.flags[i + 1] == value;
  return false;
}

std::vector<MeasuredRequest> random_requests(std::mt19937& random, std::size_t count, bool equal) {
  std::uniform_int_distribution<std::uint32_t> tokens(1, 5000);
  std::uniform_int_distribution<int> micros(1, 3'000'000);
  std::vector<MeasuredRequest> requests;
  double sent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    MeasuredRequest request;
    request.request = i;
    sent += micros(random) * 1e-6;
    request.sent_s = sent;
    request.first_token_s = sent + micros(random) * 1e-6;
    request.last_token_s = request.first_token_s + micros(random) * 1e-6;
    request.input_tokens = equal ? 64 : tokens(random);
    request.output_tokens = equal ? 8 : 1 + tokens(random);
    requests.push_back(request);
  }
  return requests;
}

TEST(Requests, AreOfferedAsTheyWereSent) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<MeasuredRequest> requests = random_requests(random, 1 + round % 17, false);
    std::vector<MeasuredRequest> shuffled = requests;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    std::string text = kHeader;
    for (const MeasuredRequest& request : shuffled) text += row("azure:0:60:1", request);
    const std::vector<MeasuredLoad> loads = read(text);
    ASSERT_EQ(loads.size(), 1U);
    ASSERT_TRUE(loads[0].workload);
    const auto& offered = loads[0].workload->requests;
    ASSERT_EQ(offered.size(), requests.size());
    double ttft = 0, e2e = 0, span = 0, tokens = 0, end = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_NEAR(offered[i].arrival_time, requests[i].sent_s - requests[0].sent_s, 2e-6);
      EXPECT_EQ(offered[i].prompt.size(), requests[i].input_tokens);
      EXPECT_EQ(offered[i].prompt.runs().size(), 1U);
      EXPECT_EQ(offered[i].max_new_tokens, requests[i].output_tokens);
      ttft += requests[i].first_token_s - requests[i].sent_s;
      e2e += requests[i].last_token_s - requests[i].sent_s;
      span += requests[i].last_token_s - requests[i].first_token_s;
      tokens += requests[i].output_tokens - 1;
      end = std::max(end, requests[i].last_token_s);
    }
    const auto n = static_cast<double>(requests.size());
    EXPECT_NEAR(*loads[0].measured.ttft_ms, 1e3 * ttft / n, 0.01);
    EXPECT_NEAR(*loads[0].measured.e2e_ms, 1e3 * e2e / n, 0.01);
    EXPECT_NEAR(*loads[0].measured.tpot_ms, 1e3 * span / tokens, 0.01);
    EXPECT_NEAR(*loads[0].measured.duration_s, end - requests[0].sent_s, 1e-5);
    EXPECT_EQ(loads[0].load_kind, "azure");
    EXPECT_TRUE(has_pair(loads[0], "--front-end", "ids"));  // prompts of a trace are drawn before it starts
  }
}

TEST(Requests, OfAClosedLoopAreTheBenchmarksWhereTheyAreEqual) {
  std::mt19937 random(6);
  std::string text = kHeader;
  for (const MeasuredRequest& request : random_requests(random, 4, true))
    text += row("closed:64:8:3:4", request);
  for (const MeasuredRequest& request : random_requests(random, 4, false))
    text += row("closed:65:8:3:4", request);
  const std::vector<MeasuredLoad> loads = read(text);
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_FALSE(loads[0].workload);
  EXPECT_TRUE(has_pair(loads[0], "--dataset-name", "random"));
  EXPECT_TRUE(has_pair(loads[0], "--random-input-len", "64"));
  EXPECT_TRUE(has_pair(loads[0], "--random-output-len", "8"));
  EXPECT_TRUE(has_pair(loads[0], "--max-concurrency", "3"));
  EXPECT_TRUE(has_pair(loads[0], "--num-prompts", "4"));
  ASSERT_TRUE(loads[1].workload);
  EXPECT_TRUE(has_pair(loads[1], "--max-concurrency", "3"));
  for (const auto& request : loads[1].workload->requests) EXPECT_EQ(request.arrival_time, 0);
}

TEST(Requests, OfASliceHaveThePromptsOfTheTrace) {
  const TemporaryFolder folder;
  const auto line = [](int time, int length, const std::string& ids) {
    return fmt::format(
        "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 5, \"hash_ids\": [{}]}}\n", time,
        length, ids);
  };
  write_file(folder / "mooncake_conversation.jsonl",
             line(0, 600, "1, 2") + line(1000, 700, "1, 3") + line(2000, 800, "1, 4") + line(9000, 100, "5"));
  const auto at = [](std::uint64_t i, double sent, std::uint32_t tokens) {
    return MeasuredRequest{i, sent, sent + 0.1, sent + 0.5, tokens, 5, 0};
  };
  const MeasurementOptions options{.traces = folder / ".", .hardware = "h200-sxm"};
  // The slice begins with the request at 1 s.
  const std::vector<MeasuredLoad> loads = read(
      kHeader + row("mooncake:1:9:1", at(0, 0.0, 700)) + row("mooncake:1:9:1", at(1, 1.0, 800)), options);
  ASSERT_EQ(loads.size(), 1U);
  ASSERT_TRUE(loads[0].workload) << loads[0].refusal;
  EXPECT_EQ(loads[0].workload->requests[0].prompt.runs()[0].first, 512U);
  EXPECT_EQ(loads[0].workload->requests[0].prompt.runs()[1].first, 3U * 512);
  EXPECT_EQ(loads[0].workload->requests[1].prompt.runs()[1].first, 4U * 512);

  const auto refusal = [&](const std::string& rows, const MeasurementOptions& from) {
    const MeasuredLoad load = read(kHeader + rows, from).at(0);
    EXPECT_FALSE(load.workload);
    return load.refusal;
  };
  EXPECT_NE(refusal(row("mooncake:1:9:1", at(0, 0.0, 701)), options).find("another trace"),
            std::string::npos);
  EXPECT_NE(refusal(row("mooncake:1:9:1", at(7, 0.0, 700)), options).find("another trace"),
            std::string::npos);
  EXPECT_NE(
      refusal(row("mooncake:1:9:1", at(0, 0.0, 700)), {.traces = folder / "none", .hardware = "h200-sxm"})
          .find("--traces"),
      std::string::npos);
  MeasuredRequest cached = at(0, 0.0, 700);
  cached.cached_tokens = 512;
  EXPECT_NE(refusal(row("own:1", cached), options).find("which prompts share"), std::string::npos);
}

TEST(Requests, TakeTheServerAndItsBatchesFromTheirFolder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "models/llama-3.1-8b");
  write_file(folder / "requests.csv",
             kHeader + row("closed:64:8:1:1", {0, 0, 0.1, 0.2, 64, 8, 0},
                           "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8 --page-size 16"));
  write_file(folder / "servers.jsonl",
             "{\"server\": \"srv\", \"version\": \"0.5.13\", \"page_size\": 64, \"quantization\": \"fp8\", "
             "\"max_total_num_tokens\": 1234, \"disable_piecewise_cuda_graph\": true}\n");
  write_file(
      folder / "batches.csv",
      "server,load,step,mode,new_seqs,new_tokens,cached_tokens,running,queued,gen_tokens_per_s,kv_tokens,"
      "accept_len\n"
      "srv,closed:64:8:1:1,0,extend,1,64,0,0,0,,,\n"
      "srv,closed:64:8:1:1,1,decode,,,,2,0,100,66,2.25\n");
  const std::vector<MeasuredLoad> loads = read_measurements(folder / "requests.csv", {});
  ASSERT_EQ(loads.size(), 1U);
  const MeasuredLoad& load = loads[0];
  EXPECT_TRUE(has_pair(load, "--model-path", (folder / "models/llama-3.1-8b").string()));
  EXPECT_TRUE(has_pair(load, "--sglang-version", "0.5.12"));  // the last known one that is not newer
  EXPECT_TRUE(has_pair(load, "--page-size", "16"));           // as the command line said
  EXPECT_EQ(std::count(load.flags.begin(), load.flags.end(), "--page-size"), 1);
  EXPECT_TRUE(has_pair(load, "--quantization", "fp8"));
  EXPECT_TRUE(has_flag(load.flags, "--disable-piecewise-cuda-graph"));
  EXPECT_TRUE(has_pair(load, "--tp-size", "2"));
  EXPECT_EQ(load.pool_tokens, 1234U);
  ASSERT_EQ(load.batches.size(), 2U);
  EXPECT_FALSE(load.batches[0].decode);
  EXPECT_EQ(load.batches[1].kv_tokens, 66U);
  ASSERT_EQ(load.accept_lens.size(), 1U);
  EXPECT_NEAR(load.accept_lens[0].second, 2.25, 1e-12);
  EXPECT_TRUE(has_pair(load, "--speculative-accept-rates", "trace"));
}

TEST(Routed, AreAskedOfAsManyServersBehindTheirPolicy) {
  const TemporaryFolder folder;
  write_file(
      folder / "servers.jsonl",
      R"({"server": "R0", "version": "0.5.12", "model_path": "llama-3.1-8b", "attention_backend": "fa3"})"
      "\n"
      R"({"server": "R1", "version": "0.5.12", "model_path": "llama-3.1-8b", "attention_backend": "fa3"})"
      "\n");
  const std::string header =
      "policy,load,worker,request,conversation,turn,sent_s,first_s,last_s,input_tokens,output_tokens,cached_"
      "tokens\n";
  write_file(folder / "router_requests.csv",
             header +
                 "direct,azure:0:60:1,R0,0,,,0,0.5,1.5,100,11,0\n"
                 "cache_aware,convp:2:40:2:6:10:9:9,R0,0,0,0,0,0.5,1,40,10,0\n"
                 "cache_aware,convp:2:40:2:6:10:9:9,R1,1,1,0,0.25,0.5,1,40,10,0\n"
                 "cache_aware,convp:2:40:2:6:10:9:9,R0,2,0,1,1.5,1.75,2,56,10,50\n");
  const std::vector<MeasuredLoad> loads = read_measurements(folder / "router_requests.csv", {});
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_FALSE(has_flag(loads[0].flags, "--dp-size"));
  EXPECT_TRUE(has_pair(loads[1], "--dp-size", "2"));
  EXPECT_TRUE(has_pair(loads[1], "--router-policy", "cache_aware"));
  EXPECT_EQ(loads[1].cached_tokens, 50U);
  ASSERT_TRUE(loads[1].workload);
  const auto& requests = loads[1].workload->requests;
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[2].session, requests[0].session);
  EXPECT_NE(requests[1].session, requests[0].session);
  EXPECT_EQ(requests[2].think_time, 0.5);
  // Its prompt begins with the one before and the answer to it.
  kvcache::TokenSequence begins = requests[0].prompt;
  begins.append(requests[0].output);
  kvcache::TokenSequence prompt = requests[2].prompt;
  EXPECT_EQ(prompt.size(), 56U);
  prompt.truncate(begins.size());
  EXPECT_EQ(prompt, begins);
}

TEST(Pairs, AreAskedAsTheirTwoServersWereStarted) {
  const TemporaryFolder folder;
  write_file(
      folder / "servers.jsonl",
      R"({"server": "P", "version": "0.5.12", "model_path": "llama-3.1-8b", "tp_size": 2, "attention_backend": "fa3", "max_total_num_tokens": 9000, "max_total_tokens": 9000})"
      "\n"
      R"({"server": "D", "tp_size": 4, "attention_backend": "flashinfer", "page_size": 64})"
      "\n");
  const std::string header =
      "tag,load,request,prefill_server,decode_server,sent_s,first_s,last_s,input_tokens,output_tokens,cached_"
      "tokens\n";
  const std::string rows =
      "pd,azure:0:60:1,0,P,D,0,0.5,1.5,100,11,7\npd,azure:0:60:1,1,P,D,1,1.25,1.5,50,6,0\n"
      "rt-pd,closed:64:8:1:1,0,P,D,0,0.5,1.5,64,8,0\n";
  write_file(folder / "pd_requests.csv", header + rows);
  const std::vector<MeasuredLoad> loads = read_measurements(folder / "pd_requests.csv", {});
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].server, "pd");
  EXPECT_EQ(loads[0].backend, "fa3+flashinfer");
  EXPECT_TRUE(has_pair(loads[0], "--tp-size", "2"));
  EXPECT_TRUE(has_flag(loads[0].flags, "--pd-disaggregation"));
  EXPECT_TRUE(has_pair(loads[0], "--pd-disaggregation",
                       "--decode-args=--page-size 64 --tp-size 4 --prefill-attention-backend flashinfer "
                       "--decode-attention-backend flashinfer"));
  EXPECT_FALSE(has_flag(loads[0].flags, "--router-policy"));
  EXPECT_TRUE(has_flag(loads[1].flags, "--router-policy"));
  EXPECT_EQ(loads[0].cached_tokens, 7U);
  EXPECT_EQ(loads[0].measured.ttft_ms, 375);
  EXPECT_EQ(loads[0].measured.duration_s, 1.5);
  EXPECT_TRUE(has_pair(loads[1], "--served-before", "warmup,other:"));  // of the same two servers
  write_file(folder / "pd_requests.csv", header + "pd,azure:0:60:1,0,P,X,0,0.5,1.5,100,11,7\n");
  EXPECT_THROW(read_measurements(folder / "pd_requests.csv", {}), UserError);
}

TEST(Benchmarks, KnowWhatTpSizeIsWhereExpertsAreSpreadAndCut) {
  const std::string head =
      "id,backend_version,model_path,system,precision,isl,osl,concurrency,tp_size,pp_size,attention_dp_size,"
      "moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::vector<MeasuredLoad> loads =
      read(head + "a,0.5.9,deepseek-ai/DeepSeek-R1,b200_sxm,fp4,1024,512,16,64,1,1,8,8,285.8,16.6\n" +
           "b,,meta-llama/Llama-3.1-8B-Instruct,h200_sxm,fp8,1000,100,8,2,1,,1,1,12.5,8.25\n" +
           "c,0.5.9,deepseek-ai/DeepSeek-R1,h200_sxm,fp8,1000,100,8,8,1,8,1,8,12.5,8.25\n");
  ASSERT_EQ(loads.size(), 3U);
  EXPECT_EQ(loads[0].id, "a");
  EXPECT_EQ(loads[0].tp, 8U);
  EXPECT_TRUE(has_pair(loads[0], "--ep-size", "8"));
  EXPECT_TRUE(has_pair(loads[0], "--model-path", "nvidia/DeepSeek-R1-FP4"));
  EXPECT_TRUE(has_pair(loads[0], "--hardware", "b200"));
  EXPECT_TRUE(has_pair(loads[0], "--max-concurrency", "16"));
  EXPECT_NEAR(*loads[0].measured.tpot_ms, 16.6, 1e-9);
  EXPECT_FALSE(loads[0].measured.duration_s);
  EXPECT_TRUE(has_pair(loads[1], "--quantization", "fp8"));
  EXPECT_FALSE(has_flag(loads[1].flags, "--sglang-version"));
  EXPECT_FALSE(has_flag(loads[2].flags, "--quantization"));
  EXPECT_TRUE(has_pair(loads[2], "--dp-size", "8"));
  EXPECT_TRUE(has_flag(loads[2].flags, "--enable-dp-attention"));
}

TEST(Benchmarks, AreAskedAsTheirPublishedScriptsRunThem) {
  const std::string head =
      "id,backend_version,model_path,system,precision,isl,osl,concurrency,tp_size,pp_size,attention_dp_size,"
      "moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::vector<MeasuredLoad> loads =
      read(head + "a,0.5.9,deepseek-ai/DeepSeek-R1,b200_sxm,fp4,1024,512,16,64,1,1,8,8,285.8,16.6\n" +
           "b,0.5.9,deepseek-ai/DeepSeek-R1,b200_sxm,fp8,8192,1024,32,4,1,1,4,1,285.8,16.6\n" +
           "c,0.5.10.post1,deepseek-ai/DeepSeek-V3,h200_sxm,fp8,1024,1024,8,8,1,1,8,1,285.8,16.6\n" +
           "d,0.5.6.post2,meta-llama/Llama-3.1-8B-Instruct,h200_sxm,fp8,1000,100,8,2,1,,1,1,12.5,8.25\n" +
           "e,0.5.1.post1,Qwen/Qwen3-32B,h100_sxm,,1000,100,8,2,1,,1,1,12.5,8.25\n" +
           "f,,deepseek-ai/DeepSeek-R1,b200_sxm,fp4,1024,1024,4,4,1,1,4,1,285.8,16.6\n");
  ASSERT_EQ(loads.size(), 6U);
  EXPECT_TRUE(has_pair(loads[0], "--scheduler-recv-interval", "30"));
  EXPECT_TRUE(has_pair(loads[0], "--stream-interval", "10"));
  EXPECT_TRUE(has_pair(loads[0], "--random-range-ratio", "0.8"));
  EXPECT_TRUE(has_pair(loads[0], "--num-prompts", "160"));
  EXPECT_TRUE(has_flag(loads[0].flags, "--disable-prefill-cuda-graph"));
  EXPECT_FALSE(has_flag(loads[0].flags, "--compile-seconds"));
  EXPECT_TRUE(has_pair(loads[1], "--mem-fraction-static", "0.95"));
  EXPECT_TRUE(has_pair(loads[1], "--scheduler-recv-interval", "10"));
  EXPECT_TRUE(has_pair(loads[2], "--attention-backend", "flashinfer"));
  EXPECT_TRUE(has_pair(loads[2], "--max-running-requests", "512"));
  EXPECT_FALSE(has_flag(loads[2].flags, "--disable-prefill-cuda-graph"));
  EXPECT_TRUE(has_flag(loads[3].flags, "--enable-mixed-chunk"));
  EXPECT_TRUE(has_pair(loads[3], "--max-prefill-tokens", "2500"));
  EXPECT_TRUE(has_flag(loads[3].flags, "--disable-radix-cache"));
  EXPECT_TRUE(has_pair(loads[3], "--random-range-ratio", "1"));
  EXPECT_TRUE(has_pair(loads[3], "--pass-gap-ms", "3,0.008"));
  EXPECT_FALSE(has_flag(loads[0].flags, "--pass-gap-ms"));
  EXPECT_FALSE(has_flag(loads[4].flags, "--enable-mixed-chunk"));
  EXPECT_TRUE(has_flag(loads[4].flags, "--pass-gap-ms"));
  EXPECT_TRUE(has_flag(loads[5].flags, "--compile-seconds"));
  for (const MeasuredLoad& load : loads)
    EXPECT_EQ(has_pair(load, "--fp8-gemm-backend", "flashinfer_trtllm"), load.id == "b") << load.id;
}

TEST(Benchmarks, WeightsAreAskedForUnderEachNameOfThem) {
  const std::string head =
      "id,backend_version,model_path,system,precision,isl,osl,gemm_quant_mode,moe_quant_mode,concurrency,"
      "tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const auto row = [](const std::string& id, const std::string& model, const std::string& precision,
                      const std::string& gemm, const std::string& moe) {
    return fmt::format("{},v0.5.9-cu130,{},b200_sxm,{},1024,1024,{},{},16,4,1,1,1,4,285.8,16.6\n", id, model,
                       precision, gemm, moe);
  };
  const std::string qwen = "Qwen/Qwen3.5-397B-A17B";
  const std::vector<MeasuredLoad> loads =
      read(head + row("16 bit", qwen, "bf16", "bfloat16", "bfloat16") +
           row("long name", qwen, "bfloat16", "", "") + row("unsaid", qwen, "", "bfloat16", "bfloat16") +
           row("fp8", qwen, "fp8", "fp8_block", "fp8_block") + row("by name", qwen + "-FP8", "fp8", "", "") +
           row("fp4", qwen, "fp4", "nvfp4", "nvfp4") + row("nvfp4", qwen, "nvfp4", "", "") +
           row("glm fp8", "zhipuai/GLM-5", "fp8", "fp8_block", "fp8_block") +
           row("glm fp4", "nvidia/GLM-5-NVFP4", "fp4", "bfloat16", "nvfp4") +
           row("own fp4", "openai/gpt-oss-120b", "fp4", "bfloat16", "w4a16_mxfp4") +
           row("unsaid experts", "openai/gpt-oss-120b", "fp4", "", "") +
           row("own int4", "moonshotai/Kimi-K2.5", "int4", "bfloat16", "int4_wo") +
           row("none", qwen, "e5m10", "", ""));
  const std::vector<std::string> models = {
      qwen,
      qwen,
      qwen,
      qwen + "-FP8",
      qwen + "-FP8",
      qwen + "-NVFP4",
      qwen + "-NVFP4",
      "zhipuai/GLM-5-FP8",
      "nvidia/GLM-5-NVFP4",
      "openai/gpt-oss-120b",
      "openai/gpt-oss-120b",
      "moonshotai/Kimi-K2.5",
      qwen,
  };
  ASSERT_EQ(loads.size(), models.size());
  for (std::size_t i = 0; i < loads.size(); ++i) {
    EXPECT_TRUE(has_pair(loads[i], "--model-path", models[i])) << loads[i].id;
    EXPECT_TRUE(has_pair(loads[i], "--sglang-version", "0.5.8")) << loads[i].id;
    EXPECT_FALSE(has_flag(loads[i].flags, "--quantization")) << loads[i].id;
    EXPECT_EQ(!loads[i].refusal.empty(), loads[i].id == "none") << loads[i].refusal;
    // The scripts of InferenceX.
    const bool scripted =
        models[i].find("Qwen3.5") != std::string::npos || models[i].find("GLM-5") != std::string::npos;
    EXPECT_EQ(has_pair(loads[i], "--random-range-ratio", "0.8"), scripted) << loads[i].id;
  }
  EXPECT_EQ(loads[0].settings, "bf16 ep4");
}

TEST(Benchmarks, OfTheFirstMonthsAreAskedAsTheyRanThen) {
  const std::string head =
      "id,backend_version,model_path,system,precision,isl,osl,concurrency,tp_size,pp_size,attention_dp_size,"
      "moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::string b200 = ",,deepseek-ai/DeepSeek-V3,b200_sxm,";
  const std::vector<MeasuredLoad> loads = read(
      head + "nvfp4" + b200 + "fp4,8192,1024,64,4,1,1,4,1,9019,38.5\n" + "first" + b200 +
      "fp4,8192,1024,64,8,1,1,8,1,2416,31.2\n" + "few" + b200 + "fp4,8192,1024,16,8,1,1,8,1,2416,31.2\n" +
      "fp8" + b200 + "fp8,8192,1024,32,64,1,1,8,8,2938,33.9\n" + "long" + b200 +
      "fp8,1024,8192,16,64,1,1,8,8,437,14.9\n" +
      "named,0.5.9,deepseek-ai/DeepSeek-V3,b200_sxm,fp4,8192,1024,64,8,1,1,8,1,2416,31.2\n");
  ASSERT_EQ(loads.size(), 6U);
  const std::vector<std::string> ep = {"4", "8", "8", "8", "8", ""};
  const std::vector<std::string> prompts = {"640", "3200", "160", "1600", "320", "640"};
  for (std::size_t i = 0; i < loads.size(); ++i) {
    EXPECT_EQ(has_pair(loads[i], "--ep-size", ep[i]), !ep[i].empty()) << loads[i].id;
    EXPECT_TRUE(has_pair(loads[i], "--num-prompts", prompts[i])) << loads[i].id;
    EXPECT_EQ(has_flag(loads[i].flags, "--pass-gap-ms"), i < 3) << loads[i].id;
  }
  EXPECT_EQ(loads[0].settings, "fp4 ep4");
}

TEST(Benchmarks, AClientThatCutsItsTextOtherwiseMakesThePromptsLonger) {
  const std::string head =
      "id,backend_version,model_path,system,precision,isl,osl,concurrency,tp_size,pp_size,attention_dp_size,"
      "moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::string ds = ",deepseek-ai/DeepSeek-V3,b300_sxm,fp4,8192,1024,4,8,1,1,8,1,966,10.6\n";
  const std::vector<MeasuredLoad> loads =
      read(head + "before,0.5.9" + ds + "of it,0.5.10.post1" + ds + "behind,0.5.11" + ds +
           "qwen,0.5.10,Qwen/Qwen3-32B,h100_sxm,,1000,100,8,2,1,,1,1,12.5,8.25\n");
  ASSERT_EQ(loads.size(), 4U);
  // 8,192 * 35,921 / 7,140
  const std::vector<std::string> lengths = {"8192", "41214", "8192", "1000"};
  for (std::size_t i = 0; i < loads.size(); ++i)
    EXPECT_TRUE(has_pair(loads[i], "--random-input-len", lengths[i])) << loads[i].id;
  EXPECT_EQ(loads[1].load, "closed:8192:1024:4:40");
  EXPECT_TRUE(has_pair(loads[0], "--tokenize-us", "3.6"));
  EXPECT_TRUE(has_pair(loads[1], "--tokenize-us", "1.1"));
  EXPECT_FALSE(has_flag(loads[3].flags, "--tokenize-us"));
}

TEST(Benchmarks, OfTwoThatAgreeInEveryColumnTheFasterOneSpeculates) {
  const std::string head =
      "id,backend_version,model_path,system,precision,isl,osl,concurrency,tp_size,pp_size,attention_dp_size,"
      "moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::string b200 = ",deepseek-ai/DeepSeek-R1,b200_sxm,fp8,1024,1024,";
  const std::vector<MeasuredLoad> loads =
      read(head + "slow,0.5.9,deepseek-ai/DeepSeek-V3,b200_sxm,fp8,1024,1024,4,8,1,1,8,1,183,8.76\n" +
           "fast,0.5.9" + b200 + "4,8,1,1,8,1,207,6.70\n" +     //
           "copy,0.5.9" + b200 + "4,8,1,1,8,1,183,8.76\n" +     //
           "alone,0.5.9" + b200 + "8,8,1,1,8,1,227,10.8\n" +    //
           "many,0.5.9" + b200 + "128,8,1,1,8,1,1413,28.7\n" +  //
           "old,0.5.6" + b200 + "128,8,1,1,8,1,1413,28.7\n" +   //
           "spread,0.5.9" + b200 + "128,8,1,1,1,8,1413,28.7\n" +
           "hopper,0.5.9,deepseek-ai/DeepSeek-R1,h200_sxm,fp8,1024,1024,128,8,1,1,8,1,1413,28.7\n" +
           "b300,0.5.10.post1,deepseek-ai/DeepSeek-V3,b300_sxm,fp4,1024,1024,4,4,1,1,4,1,147,7.6\n");
  ASSERT_EQ(loads.size(), 9U);
  for (const MeasuredLoad& load : loads) {
    const bool speculates = load.id == "fast" || load.id == "many";
    EXPECT_EQ(has_pair(load, "--speculative-algorithm", "EAGLE"), speculates) << load.id;
    EXPECT_EQ(load.setting_by_time, load.id == "slow" || load.id == "fast" || load.id == "copy") << load.id;
    EXPECT_EQ(load.settings.ends_with(" mtp"), speculates) << load.id;
    EXPECT_EQ(has_flag(load.flags, "--disable-overlap-schedule"), speculates) << load.id;
    EXPECT_TRUE(has_pair(load, "--kernel-launch-us", load.id == "old" ? "46" : "69")) << load.id;
  }
  EXPECT_TRUE(has_pair(loads[1], "--chunked-prefill-size", "16384"));
  EXPECT_TRUE(has_pair(loads[3], "--chunked-prefill-size", "32768"));
  EXPECT_TRUE(has_flag(loads[8].flags, "--disable-prefill-cuda-graph"));
}

TEST(Loads, ThatWereRepeatedCountOnceAndTheLastTime) {
  const std::vector<MeasuredLoad> loads = read(
      "server,model,backend,flags,load,tpot_ms,ttft_ms,duration_s\n"
      "s,llama-3.1-8b,fa3,,closed:64:8:1:2,5,40,2\n"
      "s,llama-3.1-8b,fa3,,burst:64:8:2,5,,\n"
      "s,llama-3.1-8b,fa3,,closed:64:8:1:2,4,30,1.5\n"
      "s,llama-3.1-8b,fa3,,azure:0:1:1,4,30,1.5\n");
  ASSERT_EQ(loads.size(), 3U);
  EXPECT_EQ(loads[0].file, "m.csv:4");
  EXPECT_NEAR(*loads[0].measured.tpot_ms, 4, 1e-12);
  EXPECT_FALSE(loads[1].measured.ttft_ms);
  EXPECT_NE(loads[2].refusal.find("rows are needed"), std::string::npos);
}

TEST(Kit, ReadsRequestsAccountAndLog) {
  const TemporaryFolder folder;
  write_file(
      folder / "x.jsonl",
      "{\"server\": \"x\", \"load\": \"closed:64:8:1:1\", \"i\": 0, \"sent\": 0.1, \"first\": 0.2, \"last\": "
      "0.5, \"isl\": 64, \"osl\": 8, \"cached\": 0}\n"
      "{\"server\": \"x\", \"load\": \"burst:64:8:2\", \"i\": 0, \"sent\": 1, \"first\": 1.2, \"last\": 1.5, "
      "\"isl\": 64, \"osl\": 8}\n"
      "{\"server\": \"x\", \"load\": \"burst:64:8:2\", \"i\": 1, \"sent\": 1, \"error\": \"gone\"}\n");
  EXPECT_THROW(read_measurements(folder / "x.jsonl", {}), UserError);  // no account
  write_file(
      folder / "x.info.json",
      "{\"model_path\": \"/root/models/llama-3.1-8b\", \"tp_size\": 1, \"attention_backend\": \"triton\",\n"
      " \"version\": \"0.5.12\", \"load_format\": \"dummy\", \"enable_mixed_chunk\": true,\n"
      " \"max_total_num_tokens\": 99}");
  write_file(
      folder / "x.log",
      "Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, #running-req: 0\nCache flushed "
      "successfully!\nCache flushed successfully!\n"
      "Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, #running-req: 0\n"
      "Decode batch, #running-req: 1, #token: 65, gen throughput (token/s): 100.5\nCache "
      "flushed successfully!\nPrefill batch, #new-seq: 2, #new-token: 57, #cached-token: 7, #running-req: "
      "3, "
      "#queue-req: 0\nCache flushed successfully!\n");
  const std::vector<MeasuredLoad> loads = read_measurements(folder / "x.jsonl", {});
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_TRUE(has_pair(loads[0], "--model-path", "llama-3.1-8b"));
  EXPECT_TRUE(has_pair(loads[0], "--attention-backend", "triton"));
  EXPECT_TRUE(has_flag(loads[0].flags, "--enable-mixed-chunk"));
  EXPECT_EQ(loads[0].pool_tokens, 99U);
  ASSERT_EQ(loads[0].batches.size(), 2U);
  EXPECT_NEAR(loads[0].batches[1].tokens_per_second, 100.5, 1e-9);
  ASSERT_EQ(loads[1].batches.size(), 1U);
  EXPECT_EQ(loads[1].batches[0].new_tokens, 57U);
  EXPECT_EQ(loads[1].batches[0].cached_tokens, 7U);
  EXPECT_EQ(loads[1].batches[0].running, 3U);
  EXPECT_TRUE(has_pair(loads[1], "--num-prompts", "1"));
}

TEST(Measurements, ThatAreMalformedAreSaidWithTheirLine) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const UserError& error) {
      return error.what();
    }
    return "(accepted)";
  };
  const MeasuredRequest good{0, 0.1, 0.2, 0.3, 64, 8, 0};
  MeasuredRequest early = good, backwards = good;
  early.first_token_s = 0.05;
  backwards.last_token_s = 0.15;
  struct Case {
    std::string text, begin, part;
  };
  const std::string loads = "server,model,backend,load,tpot_ms\n";
  const std::string silicon =
      "id,model_path,system,isl,osl,concurrency,tp_size,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::vector<Case> cases = {
      {"", "m.csv: ", "is empty"},
      {"a,b,c\n1,2,3\n", "m.csv:1: ", "of no format"},
      {kHeader, "m.csv: ", "no measurement"},
      {kHeader + row("closed:64:8:1:1", good) + "x,y\n", "m.csv:3: ", "2 columns"},
      {kHeader + row("closed:64:8:1:1", early), "m.csv:2: ", "before the request was sent"},
      {kHeader + row("closed:64:8:1:1", backwards), "m.csv:2: ", "before the first one"},
      {kHeader + row("closed:64:8:1", good), "m.csv:2: ", "closed:INPUT:OUTPUT"},
      {kHeader + row("closed:64:8:1.5:1", good), "m.csv:2: ", "closed:INPUT:OUTPUT"},
      {kHeader + row("mooncake:x:8:1", good), "m.csv:2: ", "mooncake:FROM_S"},
      {kHeader + row("\x01", good), "m.csv:2", "printable"},
      {loads + "s,m,fa3,closed:1:2:1:1,-3\n", "m.csv:2: ", "not negative"},
      {loads + "s,m,fa3,closed:1:2:1:1,0\n", "m.csv:2: ", "tpot_ms is 0"},
      {"server,model,backend,load,tpot_ms,accept_len\ns,m,fa3,closed:1:2:1:1,1,3:1 2:1\n",
       "m.csv:2: ", "accept_len"},
      {loads + "s,,fa3,closed:1:2:1:1,1\n", "m.csv:2: ", "must have a name"},
      {silicon + "i,m,h200_sxm,1024,0,1,1,1,1\n", "m.csv:2: ", "osl"},
      {silicon + "i,m,h200_sxm,1024,8,1,1,,1\n", "m.csv:2: ", "silicon_ttft_ms"},
      {"{\"server\": \"x\", \"load\": \"closed:1:2:1:1\", \"sent\"\n", "m.csv:1: ", "JSON"},
      {"{\"server\": \"x\", \"load\": \"closed:1:2:1:1\", \"i\": 0, \"sent\": 1, \"first\": \"2\"}\n",
       "m.csv:1: ", "\"first\""},
  };
  for (const Case& c : cases) {
    const std::string said = complaint(c.text);
    EXPECT_TRUE(said.starts_with(c.begin)) << said;
    EXPECT_NE(said.find(c.part), std::string::npos) << said;
  }
}

TEST(Batches, OfRandomLogsComeBack) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::uint32_t> small(0, 300), tokens(0, 200000);
  for (int round = 0; round < 30; ++round) {
    std::vector<MeasuredBatch> batches;
    std::string csv =
        "accept_len,kv_tokens,gen_tokens_per_s,running,cached_tokens,new_tokens,new_seqs,mode,load,server\n";
    std::string log = "Cache flushed successfully!\n";
    for (int i = 0; i < 20; ++i) {
      MeasuredBatch batch;
      batch.decode = small(random) % 3 != 0;
      batch.running = small(random);
      if (batch.decode) {
        batch.kv_tokens = tokens(random);
        batch.accept_len = 1 + (small(random) % 700) / 100.0;
        batch.tokens_per_second = tokens(random) / 100.0;
        csv += fmt::format("{:.2f},{},{:.2f},{},,,,decode,l,s\n", batch.accept_len, batch.kv_tokens,
                           batch.tokens_per_second, batch.running);
        log += fmt::format(
            "[x] Decode batch, #running-req: {}, #token: {}, token usage: 0.00, accept len: {:.2f}, cuda "
            "graph: "
            "True, gen throughput (token/s): {:.2f}, #queue-req: 0\n",
            batch.running, batch.kv_tokens, batch.accept_len, batch.tokens_per_second);
      } else {
        batch.new_seqs = small(random);
        batch.new_tokens = tokens(random);
        batch.cached_tokens = tokens(random);
        csv += fmt::format(",,,{},{},{},{},extend,l,s\n", batch.running, batch.cached_tokens,
                           batch.new_tokens, batch.new_seqs);
        log += fmt::format(
            "[x] Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: 0.01, "
            "#running-req: "
            "{}, #queue-req: 3\n",
            batch.new_seqs, batch.new_tokens, batch.cached_tokens, batch.running);
      }
      batches.push_back(batch);
    }
    const auto expect_same = [&batches](const std::vector<MeasuredBatch>& got) {
      ASSERT_EQ(got.size(), batches.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].decode, batches[i].decode);
        EXPECT_EQ(got[i].running, batches[i].running);
        EXPECT_EQ(got[i].kv_tokens, batches[i].kv_tokens);
        EXPECT_EQ(got[i].new_seqs, batches[i].new_seqs);
        EXPECT_EQ(got[i].new_tokens, batches[i].new_tokens);
        EXPECT_EQ(got[i].cached_tokens, batches[i].cached_tokens);
        EXPECT_NEAR(got[i].accept_len, batches[i].accept_len, 1e-9);
        EXPECT_NEAR(got[i].tokens_per_second, batches[i].tokens_per_second, 1e-9);
      }
    };
    scheduler::TraceInput csv_input(scheduler::open_memory(csv), "b.csv"),
        log_input(scheduler::open_memory(log), "b.log");
    const auto loads = read_batches(csv_input);
    ASSERT_EQ(loads.size(), 1U);
    expect_same(loads.begin()->second);
    const auto logged = read_server_log(log_input);
    ASSERT_EQ(logged.size(), 2U);
    expect_same(logged[1]);
  }
}

// What add_accept_lens() makes of them.
std::vector<std::pair<std::uint32_t, double>> accept_lens(std::vector<MeasuredBatch> batches,
                                                          std::uint32_t longest_answer) {
  MeasuredLoad load;
  load.flags = {"--speculative-algorithm", "NGRAM"};
  load.batches = std::move(batches);
  add_accept_lens(longest_answer, load);
  return load.accept_lens;
}

// Two requests whose first five steps keep two tokens, and the others five.
TEST(Batches, TellWhatIsKeptByStep) {
  std::vector<MeasuredBatch> batches(1);
  batches[0].new_seqs = 2;
  for (std::uint32_t step = 0; step < 20; ++step) {
    MeasuredBatch batch;
    batch.decode = true;
    batch.running = 2;
    batch.accept_len = step < 5 ? 2 : 5;
    batches.push_back(batch);
  }
  const std::vector<std::pair<std::uint32_t, double>> lens = accept_lens(batches, 101);
  ASSERT_EQ(lens.size(), 2U);
  EXPECT_EQ(lens[0], (std::pair<std::uint32_t, double>(0, 2)));
  EXPECT_EQ(lens[1], (std::pair<std::uint32_t, double>(5, 5)));
  EXPECT_TRUE(accept_lens({}, 10).empty());
}

// SGLang divides the chunk among data-parallel ranks before it tells what it has.
TEST(Servers, OfDataParallelRanksSayTheirShareOfTheChunk) {
  const TemporaryFolder folder;
  const auto flags = [&](const std::string& account) {
    write_file(folder / "requests.csv", kHeader + row("closed:64:8:1:1", {0, 0, 0.1, 0.2, 64, 8, 0}, ""));
    write_file(folder / "servers.jsonl", "{\"server\": \"srv\", \"version\": \"0.5.12\", " + account + "}\n");
    return read_measurements(folder / "requests.csv", {}).at(0);
  };
  const std::string share = "\"chunked_prefill_size\": 4096, \"dp_size\": 2";
  EXPECT_TRUE(has_pair(flags(share + ", \"enable_dp_attention\": true"), "--chunked-prefill-size", "8192"));
  EXPECT_TRUE(has_pair(flags(share), "--chunked-prefill-size", "4096"));
  EXPECT_TRUE(has_pair(flags("\"chunked_prefill_size\": -1, \"dp_size\": 2, \"enable_dp_attention\": true"),
                       "--chunked-prefill-size", "-1"));
}

TEST(Servers, OfAnUnknownReleaseTakeTheNearest) {
  EXPECT_EQ(nearest_release(""), "");
  EXPECT_EQ(nearest_release("main"), "");
  EXPECT_EQ(nearest_release("0.5.1.post1"), "0.5.6");
  EXPECT_EQ(nearest_release("0.5.12"), "0.5.12");
  EXPECT_EQ(nearest_release("0.5.13.post1"), "0.5.12");
  EXPECT_EQ(nearest_release("0.5.14"), "0.5.14");
  EXPECT_EQ(nearest_release("0.6"), "0.5.23");
}

TEST(HiCacheRequests, AreTheTurnsOfConversations) {
  const TemporaryFolder folder;
  write_file(
      folder / "servers.jsonl",
      R"({"server":"K","version":"0.5.12","model_path":"llama-3.1-8b","tp_size":1,"attention_backend":"fa3",)"
      R"("enable_hierarchical_cache":true,"hicache_ratio":4.0,"hicache_io_backend":"direct"})"
      "\n");
  const std::string header =
      "server,tag,load,request,conversation,turn,sent_s,first_s,last_s,input_tokens,output_tokens,cached_"
      "tokens,"
      "cached_device,cached_host,cached_storage\n";
  write_file(folder / "hicache_requests.csv", header +
                                                  "K,t,conv:2:100:2:20:8:1,0,0,0,0,1,2,100,8,0,,,\n"
                                                  "K,t,conv:2:100:2:20:8:1,1,1,0,2,3,4,100,8,0,,,\n"
                                                  "K,t,conv:2:100:2:20:8:1,2,0,1,4,4.5,5,128,8,108,60,40,8\n"
                                                  "K,t,conv:2:100:2:20:8:1,3,1,1,5,5.5,6,100,8,96,96,0,0\n");
  const std::vector<MeasuredLoad> loads = read_measurements(folder / "hicache_requests.csv", {});
  ASSERT_EQ(loads.size(), 1U);
  const MeasuredLoad& load = loads[0];
  ASSERT_TRUE(load.cached && load.workload) << load.refusal;
  EXPECT_EQ(load.cached->device, 156U);
  EXPECT_EQ(load.cached->host, 40U);
  EXPECT_EQ(load.cached->storage, 8U);
  EXPECT_EQ(load.stored_prompts, 2U);
  EXPECT_TRUE(has_pair(load, "--hicache-io-backend", "direct"));
  EXPECT_TRUE(has_pair(load, "--max-concurrency", "1"));
  const auto& turns = load.workload->requests;
  ASSERT_EQ(turns.size(), 4U);
  // A prompt, its answer, and 20 tokens more; the other's second turn was sent too early and is its first.
  kvcache::TokenSequence said = turns[0].prompt;
  said.append(turns[0].output);
  EXPECT_EQ(turns[2].prompt.size(), 128U);
  kvcache::TokenSequence begin = turns[2].prompt;
  begin.truncate(108);
  EXPECT_EQ(begin, said);
  EXPECT_EQ(turns[3].prompt, turns[1].prompt);
  write_file(folder / "hicache_requests.csv", header + "K,t,closed:1:2:3:4,0,0,0,0,1,2,100,8,0,,,\n");
  EXPECT_NE(read_measurements(folder / "hicache_requests.csv", {}).at(0).refusal.find("conv:N:FIRST"),
            std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
