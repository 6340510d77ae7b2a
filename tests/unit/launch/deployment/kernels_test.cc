// Which kernels a deployment runs: those that flags name, and SGLang's own rule for fused sums.
#include "launch/deployment/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/deployment/resolve.h"
#include "proto/base/error.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch::kernels_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> words_of(const std::string& model, const std::string& gpu,
                                  std::vector<std::string> extra) {
  std::vector<std::string> words = {"--model-path", model, "--hardware", gpu, "--trace", "t", "--tp", "8"};
  words.insert(words.end(), extra.begin(), extra.end());
  return words;
}
Deployment resolve(const std::string& model, const std::string& gpu, std::vector<std::string> extra = {}) {
  return resolve_deployments(parse(words_of(model, gpu, std::move(extra))), false).front();
}
std::string refused(const std::string& model, const std::string& gpu, std::vector<std::string> extra) {
  try {
    resolve(model, gpu, std::move(extra));
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}
bool uncalibrated(const Deployment& run, const std::string& name) {
  for (const auto& row : run.header.calibration())
    if (row.operator_class() == name) return row.status() == "uncalibrated";
  return false;
}

// apply_deepseek_v4_defaults of SGLang's arg_groups/deepseek_v4_hook.py.
TEST(Kernels, DeepseekV4HasDefaultsOfItsOwn) {
  const Deployment run = resolve("deepseek-v4-flash", "b200");
  EXPECT_EQ(run.attention.backends.decode, "dsv4");
  EXPECT_EQ(run.attention.page_size, 256U);
  EXPECT_EQ(run.attention.kv_format, NumberFormat::kFp8E4M3);
  EXPECT_EQ(run.scheduler.max_running_requests, 256U);
  EXPECT_DOUBLE_EQ(run.memory.windows.full_tokens_ratio, 0.1);
  EXPECT_FALSE(uncalibrated(run, "attention.dsv4.csa.decode"));
  const Deployment ranks = resolve("deepseek-v4-flash", "b200", {"--enable-dp-attention", "--dp-size", "8"});
  EXPECT_EQ(ranks.scheduler.max_running_requests, 32U);
  EXPECT_THAT(refused("deepseek-v4-flash", "b200", {"--kv-cache-dtype", "bfloat16"}), HasSubstr("fp8_e4m3"));
  EXPECT_THAT(refused("deepseek-v4-flash", "b200", {"--disable-hybrid-swa-memory"}), HasSubstr("windows"));
  EXPECT_THAT(refused("deepseek-v4-flash", "b200", {"--executor", "numeric", "--dtype", "bfloat16"}),
              HasSubstr("float32 only"));
  EXPECT_THAT(refused("deepseek-v4-flash", "b200", {"--pp-size", "2"}), HasSubstr("streams"));
  EXPECT_THAT(refused("deepseek-v4-flash", "b200", {"--attention-backend", "fa3"}), HasSubstr("dsv4"));
  EXPECT_EQ(refused("deepseek-v4-flash", "b200",
                    {"--deepep-config", "{\"normal_dispatch\": {}, \"normal_combine\": {}}"}),
            "accepted");
}

TEST(Kernels, SumsAreFusedWithNormsAsTheReleaseDoes) {
  const auto fuses = [](const char* model, const char* gpu, std::vector<std::string> extra) {
    return resolve(model, gpu, std::move(extra)).parallel.layout.fuses_all_reduces;
  };
  EXPECT_TRUE(fuses("deepseek-v3", "b200", {"--sglang-version", "0.5.6"}));
  EXPECT_FALSE(
      fuses("deepseek-v3", "h200-sxm", {"--sglang-version", "0.5.6"}));  // Blackwell only, before 0.5.7
  EXPECT_TRUE(fuses("deepseek-v3", "h200-sxm", {"--sglang-version", "0.5.8"}));
  EXPECT_FALSE(fuses("glm-4.6", "b200", {"--sglang-version", "0.5.6"}));
  EXPECT_TRUE(fuses("glm-4.6", "b200", {"--sglang-version", "0.5.8"}));
  EXPECT_FALSE(fuses("llama-3.1-70b", "h200-sxm", {}));
  EXPECT_TRUE(fuses("llama-3.1-70b", "h200-sxm", {"--enable-flashinfer-allreduce-fusion"}));
  EXPECT_TRUE(fuses("llama-3.1-70b", "h200-sxm", {"--flashinfer-allreduce-fusion-backend", "trtllm"}));
  EXPECT_FALSE(fuses("deepseek-v3", "b200", {"--enforce-disable-flashinfer-allreduce-fusion"}));
  EXPECT_FALSE(fuses("deepseek-v3", "b200", {"--enable-dp-attention", "--dp-size", "8"}));
  EXPECT_FALSE(fuses("llama-3.1-70b", "a100-sxm", {"--enable-flashinfer-allreduce-fusion"}));
  EXPECT_TRUE(uncalibrated(resolve("deepseek-v3", "b200"), "all_reduce.flashinfer_fused"));
}

TEST(Kernels, ARunnerIsOneOfTheExpertsFormat) {
  EXPECT_THAT(refused("deepseek-v3", "h200-sxm", {"--moe-runner-backend", "flashinfer_mxfp4"}),
              AllOf(HasSubstr("--moe-runner-backend flashinfer_mxfp4"), HasSubstr("fp8")));
  EXPECT_THAT(refused("deepseek-v3", "h200-sxm", {"--moe-runner-backend", "flashinfer_trtllm"}),
              HasSubstr("Blackwell"));
  EXPECT_THAT(refused("deepseek-v3", "h200-sxm", {"--moe-runner-backend", "aiter"}),
              HasSubstr("is not for --hardware h200-sxm"));
  EXPECT_THAT(refused("deepseek-v3", "h200-sxm", {"--moe-runner-backend", "fast"}), HasSubstr("triton"));
}

TEST(Kernels, WhatWasNotMeasuredSaysSo) {
  EXPECT_TRUE(uncalibrated(resolve("deepseek-v3", "h200-sxm", {"--moe-runner-backend", "deep_gemm"}),
                           "moe_runner.deep_gemm"));
  EXPECT_FALSE(uncalibrated(resolve("deepseek-v3", "h200-sxm", {"--moe-runner-backend", "triton"}),
                            "moe_runner.triton"));
  EXPECT_TRUE(uncalibrated(resolve("deepseek-v3", "h200-sxm", {"--fp8-gemm-backend", "cutlass"}),
                           "fp8_gemm_backend.cutlass"));
  // No fp8 weights, no kernel of theirs.
  EXPECT_FALSE(uncalibrated(resolve("llama-3.1-70b", "h200-sxm", {"--fp8-gemm-backend", "cutlass"}),
                            "fp8_gemm_backend.cutlass"));
}

TEST(Kernels, ARunnerChangesTheKernelOfTheExperts) {
  const std::vector<std::string> triton = {"--moe-runner-backend", "triton"};
  const auto has = [](const Deployment& run, const std::string& name) {
    for (const auto& row : run.header.calibration())
      if (row.operator_class() == name) return true;
    return false;
  };
  EXPECT_TRUE(has(resolve("qwen3-235b-a22b", "b200"), "moe.flashinfer_trtllm"));
  EXPECT_FALSE(has(resolve("qwen3-235b-a22b", "b200", triton), "moe.flashinfer_trtllm"));
  EXPECT_TRUE(has(resolve("gpt-oss-120b", "h200-sxm"), "moe.mxfp4.triton_kernels"));
  EXPECT_TRUE(has(resolve("gpt-oss-120b", "h200-sxm", {"--moe-runner-backend", "flashinfer_mxfp4"}),
                  "moe.w4a16_mxfp4"));
}

TEST(Kernels, OtherExchangesAreDeepEpsAndSayIt) {
  const Deployment run = resolve("deepseek-v3", "b200", {"--moe-a2a-backend", "flashinfer"});
  EXPECT_EQ(run.header.server_args().at("moe_a2a_backend"), "flashinfer");
  EXPECT_THAT(run.notes, ::testing::Contains(HasSubstr("priced as deepep's")));
  EXPECT_THAT(
      refused("deepseek-v3", "b200", {"--moe-a2a-backend", "deepep", "--deepep-config", "{\"a\": 1}"}),
      HasSubstr("normal_dispatch"));
  EXPECT_THAT(refused("deepseek-v3", "b200", {"--moe-a2a-backend", "deepep", "--deepep-config", "/none"}),
              HasSubstr("neither JSON nor a file"));
  EXPECT_THAT(refused("deepseek-v3", "b200", {"--deepep-config", "{}"}), HasSubstr("--deepep-config"));
}

}  // namespace
}  // namespace tpsim::launch::kernels_test
