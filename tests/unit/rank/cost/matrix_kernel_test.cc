#include "rank/cost/matrix_kernel.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <utility>

#include "rank/cost/expert_tuning.h"
#include "rank/cost/hardware.h"
#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

using Kind = WeightFormat::Kind;

constexpr WeightFormat kFp8{Kind::kFp8, 1, 0, false, ActivationFormat::kFp8};
constexpr WeightFormat kBlocks{Kind::kFp8, 128, 128, false, ActivationFormat::kFp8};
constexpr WeightFormat kInt4{Kind::kInt4, 1, 128, true, ActivationFormat::k16Bit};
constexpr WeightFormat kMxfp4{Kind::kMxfp4, 1, 32, false, ActivationFormat::k16Bit};
constexpr WeightFormat kNvfp4{Kind::kNvfp4, 1, 16, false, ActivationFormat::kNvfp4};

TEST(MatrixKernel, ClassesHaveNamesOfTheirOwnAndStandInsThatEnd) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kMatrixClasses; ++i) {
    auto id = MatrixClass(i);
    EXPECT_TRUE(names.insert(matrix_class(id).name).second) << matrix_class(id).name;
    const bool moe = matrix_class(id).moe();
    std::size_t steps = 0;
    for (; matrix_class(id).stands_in != id; id = matrix_class(id).stands_in)
      ASSERT_LT(++steps, kMatrixClasses);
    EXPECT_EQ(matrix_class(id).moe(), moe);
  }
}

// SGLang's pull request 13528, of a GB200.
TEST(MatrixKernel, FlashInfersProductsOfBlocksAreSlowWhereTheyAreLarge) {
  proto::HardwareProfile profile = load_hardware("gb200");
  const OperatorCosts deepgemm(profile);
  proto::HardwareProfile h200 = load_hardware("h200-sxm");
  EXPECT_FALSE(use_trtllm_blocks(h200));
  ASSERT_TRUE(use_trtllm_blocks(profile));
  const OperatorCosts trtllm(profile);
  const auto us = [](const OperatorCosts& costs, double m, std::uint64_t n) {
    return costs.gemm(m, n, 7168, kBlocks).seconds * 1e6;
  };
  for (const auto& [m, measured] : {std::pair(256.0, 223.5), {1024.0, 826.2}, {2048.0, 1632.5}}) {
    EXPECT_NEAR(us(trtllm, m, 24576), measured, 0.1 * measured) << m;
    EXPECT_LT(us(deepgemm, m, 24576), 0.5 * measured) << m;
  }
  for (const double m : {1.0, 8.0, 16.0}) EXPECT_EQ(us(trtllm, m, 24576), us(deepgemm, m, 24576)) << m;
  EXPECT_EQ(trtllm.gemm(4096, 4096, 4096).seconds, deepgemm.gemm(4096, 4096, 4096).seconds);
}

TEST(MatrixKernel, WhichKernelRunsWhere) {
  const proto::HardwareProfile h200 = load_hardware("h200-sxm");
  const proto::HardwareProfile b200 = load_hardware("b200");
  const proto::HardwareProfile a100 = load_hardware("a100-sxm");
  EXPECT_EQ(linear_kernel({}, h200), MatrixClass::kGemm);
  EXPECT_EQ(linear_kernel(kFp8, h200), MatrixClass::kGemmFp8);
  EXPECT_EQ(linear_kernel(kBlocks, h200), MatrixClass::kGemmFp8Block);
  EXPECT_EQ(linear_kernel(kFp8, a100), MatrixClass::kGemmInt4) << "Marlin widens the weights";
  EXPECT_EQ(linear_kernel(kNvfp4, b200), MatrixClass::kGemmNvfp4);
  // Qwen3-30B-A3B at --tp 2 has a tuned configuration on an H200, DeepSeek's experts have none.
  EXPECT_TRUE(has_tuned_experts("h200-sxm", 128, 384));
  EXPECT_EQ(expert_kernel({}, h200, 128, 384, 1, false), MatrixClass::kMoe);
  EXPECT_EQ(expert_kernel({}, h200, 256, 256, 256, false), MatrixClass::kMoeDefaultFew);
  EXPECT_EQ(expert_kernel({}, h200, 256, 256, 257, false), MatrixClass::kMoeDefault);
  EXPECT_EQ(expert_kernel({}, b200, 128, 384, 1, true), MatrixClass::kMoeTrtllm);
  EXPECT_EQ(expert_kernel(kMxfp4, b200, 32, 2880, 1, false), MatrixClass::kMoeMxfp4Fp8);
  EXPECT_EQ(expert_kernel(kMxfp4, h200, 32, 2880, 1, false), MatrixClass::kMoeTritonKernels);
  EXPECT_EQ(expert_kernel(kMxfp4, h200, 16, 2880, 1, false, 2), MatrixClass::kMoeMxfp4)
      << "SGLang takes triton_kernels where one rank has all experts";
  EXPECT_EQ(expert_kernel(kMxfp4, a100, 32, 2880, 1, false), MatrixClass::kMoeMxfp4);
  EXPECT_TRUE(chooses_trtllm(TrtllmExperts::k16BitFp8OrNvfp4, kBlocks, b200));
  EXPECT_FALSE(chooses_trtllm(TrtllmExperts::k16BitFp8OrNvfp4, kBlocks, h200));
  EXPECT_FALSE(chooses_trtllm(TrtllmExperts::kNone, {}, b200));
  EXPECT_FALSE(chooses_trtllm(TrtllmExperts::kNvfp4, kBlocks, b200));
}

// Where weights are what is read, fewer bits are faster; where arithmetic counts, faster arithmetic is.
TEST(MatrixKernel, FewerBitsAreFaster) {
  const OperatorCosts h200(load_hardware("h200-sxm"));
  const OperatorCosts b200(load_hardware("b200"));
  for (const double m : {1.0, 8192.0}) {
    EXPECT_LT(h200.gemm(m, 28672, 8192, kFp8).seconds, 0.8 * h200.gemm(m, 28672, 8192).seconds) << m;
    EXPECT_LT(b200.gemm(m, 28672, 8192, kNvfp4).seconds, 0.8 * b200.gemm(m, 28672, 8192, kFp8).seconds) << m;
  }
  const RoutedExperts deepseek{.tokens = 64, .hidden = 7168, .width = 256, .experts = 256, .top_k = 8};
  const auto price = [](const OperatorCosts& costs, const RoutedExperts& experts,
                        const WeightFormat& format) {
    return costs.moe(costs.experts(TrtllmExperts::k16BitFp8OrNvfp4, experts, format), experts, format)
        .seconds;
  };
  EXPECT_LT(price(h200, deepseek, kBlocks), 0.8 * price(h200, deepseek, {}));
  // Not of DeepSeek's shape: its fp8 price rests on rows of its own, those of fewer bits do not (catalogue).
  const RoutedExperts qwen{.tokens = 64, .hidden = 4096, .width = 384, .experts = 128, .top_k = 8};
  EXPECT_LT(price(h200, qwen, kInt4), price(h200, qwen, kBlocks));
  EXPECT_LT(price(b200, qwen, kNvfp4), 0.8 * price(b200, qwen, kBlocks));
}

// Each token chooses different experts: one token hits top_k of them, and what is read follows.
TEST(MatrixKernel, ExpertsOfOtherRanksAreNotRead) {
  const OperatorCosts costs(load_hardware("h200-sxm"));
  RoutedExperts experts{
      .tokens = 4096, .hidden = 7168, .width = 2048, .experts = 32, .top_k = 8, .ep_size = 8};
  const KernelCost part = costs.moe(MatrixClass::kMoeFp8, experts, kBlocks);
  experts.experts = 256;
  experts.ep_size = 1;
  const KernelCost all = costs.moe(MatrixClass::kMoeFp8, experts, kBlocks);
  EXPECT_NEAR(all.flops / part.flops, 8, 1e-9);
  EXPECT_NEAR(all.bytes / part.bytes, 8, 0.1);
  EXPECT_GT(part.seconds, all.seconds / 8);
}

}  // namespace
}  // namespace tpsim::rank
