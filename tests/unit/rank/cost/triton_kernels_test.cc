#include "rank/cost/triton_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "rank/cost/hardware.h"
#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

constexpr WeightFormat kTritonMxfp4{WeightFormat::Kind::kMxfp4, 1, 32, false, ActivationFormat::k16Bit};
constexpr MatrixClass kKernel = MatrixClass::kMoeTritonKernels;
const char* const kHopper[] = {"h200-sxm", "h100-sxm", "h100-pcie", "h20", "gh200"};

// gpt-oss-20b's experts at --tp `tp`, gpt-oss-120b's of 128.
RoutedExperts gpt_oss(double tokens, std::uint64_t tp = 1, std::uint32_t experts = 32) {
  return {.tokens = tokens, .hidden = 2880, .width = 2880 / tp, .experts = experts, .top_k = 4};
}
// Every token at the same four.
RoutedExperts same_four(double tokens, std::uint64_t tp = 1, std::uint32_t experts = 32) {
  RoutedExperts out = gpt_oss(tokens, tp, 4);
  out.same_choice = true;
  out.loaded_experts = experts;
  return out;
}
TritonExpertsPlan plan(const RoutedExperts& experts) {
  return plan_triton_experts(experts, work_of(experts));
}

// As make_default_opt_flags_nvidia of triton_kernels says with 8 warps and split_k 1.
TEST(TritonKernels, BlocksFollowTheRowsOfAnEvenChoice) {
  struct Case {
    double tokens, of_20b, of_120b;
  };
  for (const Case& c :
       {Case{1, 16, 16}, Case{64, 16, 16}, Case{71, 16, 16}, Case{72, 32, 16}, Case{128, 32, 16},
        Case{136, 64, 16}, Case{256, 64, 16}, Case{512, 64, 32}, Case{519, 64, 32}, Case{520, 128, 32},
        Case{2048, 128, 64}, Case{4096, 128, 128}, Case{8192, 128, 128}}) {
    EXPECT_EQ(plan(gpt_oss(c.tokens)).block_rows, c.of_20b) << c.tokens;
    EXPECT_EQ(plan(same_four(c.tokens)).block_rows, c.of_20b) << c.tokens;
    EXPECT_EQ(plan(gpt_oss(c.tokens, 1, 128)).block_rows, c.of_120b) << c.tokens;
  }
}

TEST(TritonKernels, TilesAreBlocksByColumns) {
  const TritonExpertsPlan few = plan(same_four(16));
  EXPECT_EQ(few.blocks, 4);
  EXPECT_EQ(few.up_tiles, 4 * 23);  // 5,760 outputs
  EXPECT_EQ(few.down_tiles, 4 * 12);
  EXPECT_EQ(plan(same_four(17)).blocks, 8);
  EXPECT_EQ(plan(same_four(8192)).blocks, 4 * 64);
  // Padded to 64: gpt-oss at --tp 4 and 8 has 720 and 360.
  EXPECT_EQ(plan(same_four(1, 4)).width, 768);
  EXPECT_EQ(plan(same_four(1, 8)).width, 384);
  EXPECT_EQ(plan(same_four(1, 1)).width, 2880);
  // Of an even choice: a block for each expert that is hit, and its last one half full where it has more.
  EXPECT_DOUBLE_EQ(plan(gpt_oss(16)).blocks, work_of(gpt_oss(16)).hit);
  EXPECT_NEAR(plan(gpt_oss(4096)).blocks, 4096 * 4 / 128.0 + 32 * 127.0 / 256, 1e-6);
}

TEST(TritonKernels, NeverBeatsTheDatasheet) {
  for (const char* const gpu : kHopper) {
    const proto::HardwareProfile profile = load_hardware(gpu);
    const OperatorCosts costs(profile);
    for (const std::uint64_t tp : {1, 2, 4, 8}) {
      for (double tokens = 1; tokens <= 16384; tokens *= 4) {
        for (const RoutedExperts& experts :
             {gpt_oss(tokens, tp), gpt_oss(tokens, tp, 128), same_four(tokens, tp)}) {
          const KernelCost cost = costs.moe(kKernel, experts, kTritonMxfp4);
          EXPECT_GE(cost.seconds, cost.flops / profile.dense_flops_bf16()) << gpu << tokens;
          EXPECT_GE(cost.seconds, cost.bytes / profile.memory_bandwidth()) << gpu << tokens;
        }
      }
    }
  }
}

// Also where blocks become larger, so that there are fewer tiles.
TEST(TritonKernels, MoreTokensAreNotCheaper) {
  for (const char* const gpu : kHopper) {
    const OperatorCosts costs(load_hardware(gpu));
    for (const std::uint64_t tp : {1, 2, 4, 8}) {
      for (const auto& make : {+[](double t, std::uint64_t n) { return gpt_oss(t, n); },
                               +[](double t, std::uint64_t n) { return gpt_oss(t, n, 128); },
                               +[](double t, std::uint64_t n) { return same_four(t, n); }}) {
        const auto us = [&](double tokens) {
          return costs.moe(kKernel, make(tokens, tp), kTritonMxfp4).seconds;
        };
        for (double tokens = 1; tokens < 16384;
             tokens = tokens < 64 ? tokens + 1 : std::floor(tokens * 1.07)) {
          EXPECT_GE(us(2 * tokens), us(tokens)) << gpu << " " << tp << " " << tokens;
          EXPECT_GE(us(tokens + 1), us(tokens)) << gpu << " " << tp << " " << tokens;
        }
      }
    }
  }
}

TEST(TritonKernels, FewerExpertsAndNarrowerOnesAreCheaper) {
  const OperatorCosts costs(load_hardware("h200-sxm"));
  for (const double tokens : {4.0, 64.0, 1024.0}) {
    const double even = costs.moe(kKernel, gpt_oss(tokens), kTritonMxfp4).seconds;
    EXPECT_LT(costs.moe(kKernel, same_four(tokens), kTritonMxfp4).seconds, even) << tokens;
    EXPECT_LE(even, costs.moe(kKernel, gpt_oss(tokens, 1, 128), kTritonMxfp4).seconds) << tokens;
    EXPECT_LT(costs.moe(kKernel, gpt_oss(tokens, 4), kTritonMxfp4).seconds, even) << tokens;
  }
}

}  // namespace
}  // namespace tpsim::rank
