#include "rank/model/op_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "launch/kernels/operator_rows.h"
#include "rank/model/hardware.h"

namespace tpsim::rank {
namespace {

// Qwen3-30B-A3B's experts.
RoutedExperts qwen(double tokens) {
  return {.tokens = tokens, .hidden = 2048, .width = 768, .experts = 128, .top_k = 8};
}

TEST(OpCost, NoOperatorBeatsTheDatasheet) {
  for (const std::string& name : hardware_catalogue()) {
    const proto::HardwareProfile profile = load_hardware(name);
    const OperatorCosts costs(profile);
    for (const double m : {1.0, 16.0, 300.0, 8192.0}) {
      const KernelCost cost = costs.gemm(m, 8192, 8192);
      EXPECT_GE(cost.seconds, cost.flops / profile.dense_flops_bf16()) << name << m;
      EXPECT_GE(cost.seconds, cost.bytes / profile.memory_bandwidth()) << name << m;
      EXPECT_EQ(cost.flops, 2 * m * 8192 * 8192);
      const KernelCost moe = costs.moe(MatrixClass::kMoe, qwen(m));
      EXPECT_GE(moe.seconds, moe.flops / profile.dense_flops_bf16()) << name << m;
      EXPECT_GE(moe.seconds, moe.bytes / profile.memory_bandwidth()) << name << m;
    }
  }
}

TEST(OpCost, MoreWorkIsNeverMuchCheaper) {
  const OperatorCosts costs(load_hardware("h200-sxm"));
  double gemm = 0, moe = 0, reduce = 0;
  for (double m = 1; m <= 16384; m *= 2) {
    EXPECT_GE(costs.gemm(m, 4096, 4096).seconds, gemm * 0.999) << m;
    EXPECT_GE(costs.all_reduce(m * 8192, 8).seconds, reduce * 0.75) << m;  // where the algorithm changes
    EXPECT_GE(costs.moe(MatrixClass::kMoe, qwen(m)).seconds, moe * 0.9) << m;
    gemm = costs.gemm(m, 4096, 4096).seconds;
    moe = costs.moe(MatrixClass::kMoe, qwen(m)).seconds;
    reduce = costs.all_reduce(m * 8192, 8).seconds;
  }
}

TEST(OpCost, ExpertsThatAreHit) {
  const OperatorCosts costs(load_hardware("h200-sxm"));
  // One token reads the weights of at most top_k experts, many tokens of all.
  const double expert = 3.0 * 2048 * 768 * 2;
  EXPECT_NEAR(costs.moe(MatrixClass::kMoe, qwen(1)).bytes / expert, 8, 0.1);
  EXPECT_NEAR(costs.moe(MatrixClass::kMoe, qwen(4096)).bytes / expert, 128, 64);
}

TEST(OpCost, WhenTheCustomAllReduceRuns) {
  const OperatorCosts nvlink(load_hardware("h200-sxm"));
  EXPECT_TRUE(nvlink.uses_custom_all_reduce(8 << 20, 8));
  EXPECT_FALSE(nvlink.uses_custom_all_reduce((8 << 20) + 1, 8));
  EXPECT_FALSE(nvlink.uses_custom_all_reduce(1024, 16));
  EXPECT_FALSE(nvlink.uses_custom_all_reduce(1024, 3));
  const OperatorCosts pcie(load_hardware("l40s"));
  EXPECT_TRUE(pcie.uses_custom_all_reduce(1024, 2));
  EXPECT_FALSE(pcie.uses_custom_all_reduce(1024, 4));

  EXPECT_EQ(nvlink.all_reduce(1024, 1).seconds, 0);
  EXPECT_EQ(nvlink.all_reduce_sent(1024, 1), 0);
  EXPECT_EQ(nvlink.all_reduce_sent(1024, 8), 7 * 1024);                      // one shot
  EXPECT_EQ(nvlink.all_reduce_sent(1 << 20, 8), 2.0 * (1 << 20) * 7 / 8);    // two shots
  EXPECT_EQ(nvlink.all_reduce_sent(64 << 20, 8), 2.0 * (64 << 20) * 7 / 8);  // ring
}

// The catalogue's coefficients against every measured row, not only those they were fitted on.
TEST(OpCost, MedianErrorOnMeasuredKernels) {
  const std::filesystem::path kernels =
      std::filesystem::path(TPSIM_SOURCE_DIR) / ".." / "shared" / "data" / "kernels";
  if (!std::filesystem::is_directory(kernels)) {
    GTEST_SKIP() << "no measured kernels at " << kernels << "; see shared/data/README.md";
  }
  for (const auto& [name, folder] :
       {std::pair{"h200-sxm", "h200_sxm"}, std::pair{"h100-sxm", "h100_sxm"}, std::pair{"b200", "b200_sxm"},
        std::pair{"l40s", "l40s"}, std::pair{"a100-sxm", "a100_sxm"}}) {
    const proto::HardwareProfile profile = load_hardware(name);
    const OperatorCosts costs(profile);
    for (const std::string& operator_class : calibration::operator_classes()) {
      std::vector<double> errors;
      for (const auto& row : calibration::operator_rows(kernels / folder, operator_class, profile)) {
        errors.push_back(std::abs(calibration::price(costs, operator_class, row) / row.seconds - 1));
      }
      if (errors.empty()) continue;  // nobody measured it on this GPU
      std::sort(errors.begin(), errors.end());
      const double median = errors[errors.size() / 2];
      EXPECT_LT(median, 0.25) << name << " " << operator_class;
      for (const auto& entry : profile.efficiencies()) {
        if (entry.operator_class() == operator_class) {
          EXPECT_NEAR(entry.median_error(), median, 0.03) << name << " " << operator_class;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tpsim::rank
