#include "rank/cost/op_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "launch/lab/kernels/grouped_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "launch/lab/kernels/operator_rows.h"
#include "rank/cost/grouped_experts.h"
#include "rank/cost/hardware.h"

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

// Grouped products of deepseek-v2-lite's experts in a server's decode passes, all tokens at the same six
// (tests/calibration/measured/h200-sxm_layers.csv), beyond those of 16 tokens.
TEST(OpCost, AnExpertsFurtherTilesReadItsWeightsAgain) {
  const OperatorCosts costs(load_hardware("h200-sxm"));
  const auto us = [&costs](MatrixClass kernel, double tokens) {
    RoutedExperts experts{.tokens = tokens, .hidden = 2048, .width = 1408, .experts = 6, .top_k = 6};
    experts.same_choice = true;
    return 1e6 * costs.moe(kernel, experts).seconds;
  };
  const auto few = [&us](double tokens) { return us(MatrixClass::kMoeDefaultFew, tokens); };
  EXPECT_NEAR(few(32) - few(16), 14.4, 4);
  EXPECT_NEAR(few(48) - few(16), 26.0, 6);
  EXPECT_NEAR(few(64) - few(16), 38.6, 8);
  EXPECT_LT(few(64) - few(56), 2);  // four tiles of 16 rows, too
  const auto many = [&us](double tokens) { return us(MatrixClass::kMoeDefault, tokens); };
  EXPECT_LT(many(128) - many(72), 6);  // two tiles of 64 rows
  EXPECT_GT(many(129), many(128) + 5);
}

double log_uniform(std::mt19937& random, double least, double most) {
  return std::floor(least * std::exp2(std::uniform_real_distribution(0.0, std::log2(most / least))(random)));
}

// Where classes have corrections twice the work is never cheaper, and one row more hardly. Formulas alone may
// fall a little where one tile more draws more of the bandwidth.
TEST(OpCost, MoreWorkIsNotCheaper) {
  constexpr double kOneMore = 0.97;
  std::mt19937 random(7);
  for (const std::string& name : hardware_catalogue()) {
    const proto::HardwareProfile profile = load_hardware(name);
    const OperatorCosts costs(profile);
    const proto::OperatorEfficiency* const entry = find_efficiency(profile, "gemm");
    const bool corrected = entry != nullptr && entry->corrections_size() > 0;
    const double twice = corrected ? 0.999 : 0.98;
    const double twice_experts = corrected ? 0.98 : 0.85;
    for (int round = 0; round < 200; ++round) {
      const auto kernel = MatrixClass(random() % 6);
      const auto n = static_cast<std::uint64_t>(16 * log_uniform(random, 1, 8192));
      const auto k = static_cast<std::uint64_t>(16 * log_uniform(random, 1, 8192));
      const double m = log_uniform(random, 1, 70000);
      const double once = costs.gemm(kernel, m, n, k, {}).seconds;
      EXPECT_GE(costs.gemm(kernel, 2 * m, n, k, {}).seconds, once * twice)
          << name << " " << matrix_class(kernel).name << " " << m << " " << n << " " << k;
      EXPECT_GE(costs.gemm(kernel, m + 1, n, k, {}).seconds, once * kOneMore)
          << name << " " << matrix_class(kernel).name << " " << m << " " << n << " " << k;
    }
    for (int round = 0; round < 100; ++round) {
      const auto kernel = MatrixClass(6 + random() % 9);
      RoutedExperts experts{.tokens = log_uniform(random, 1, 70000),
                            .hidden = static_cast<std::uint64_t>(128 * log_uniform(random, 1, 64)),
                            .width = static_cast<std::uint64_t>(64 * log_uniform(random, 1, 64)),
                            .experts = static_cast<std::uint32_t>(log_uniform(random, 8, 512)),
                            .top_k = static_cast<std::uint32_t>(log_uniform(random, 1, 8))};
      const double once = costs.moe(kernel, experts).seconds;
      experts.tokens *= 2;
      EXPECT_GE(costs.moe(kernel, experts).seconds, once * twice_experts)
          << name << " " << matrix_class(kernel).name << " " << experts.tokens;
    }
    for (int round = 0; round < 100; ++round) {
      const double bytes = log_uniform(random, 256, 2e9);
      const std::uint32_t gpus = 2U << (random() % 3);
      const auto doubled = [&](auto price) {
        EXPECT_GE(price(2 * bytes).seconds, price(bytes).seconds * 0.999) << name << bytes << " " << gpus;
      };
      doubled([&](double size) { return costs.nccl_all_reduce(size, gpus); });
      doubled([&](double size) { return costs.all_gather(size, gpus); });
      doubled([&](double size) { return costs.reduce_scatter(size, gpus); });
      doubled([&](double size) { return costs.all_to_all(size, gpus); });
      doubled([&](double size) { return costs.send(size); });
      // Where the algorithm changes, or the library.
      EXPECT_GE(costs.all_reduce(2 * bytes, gpus).seconds, costs.all_reduce(bytes, gpus).seconds * 0.75)
          << name << bytes << " " << gpus;
    }
  }
}

// Far beyond every measured shape twice the work takes about twice as long.
TEST(OpCost, GrowsSanelyBeyondWhatWasMeasured) {
  for (const std::string& name : hardware_catalogue()) {
    const OperatorCosts costs(load_hardware(name));
    for (std::size_t i = 0; i < 6; ++i) {
      const auto of = [&](double m) { return costs.gemm(MatrixClass(i), m, 8192, 8192, {}).seconds; };
      EXPECT_NEAR(of(131072) / of(65536), 2, 0.1) << name << i;
    }
    const auto experts = [&](double tokens) { return costs.moe(MatrixClass::kMoe, qwen(tokens)).seconds; };
    EXPECT_NEAR(experts(262144) / experts(131072), 2, 0.1) << name;
  }
}

// A factor of two over one column of shapes doubles their prices and no others', and no factor takes a price
// below what the datasheet's peaks leave.
TEST(OpCost, CorrectionsMultiply) {
  proto::HardwareProfile profile = load_hardware("h200-sxm");
  for (auto& entry : *profile.mutable_efficiencies()) entry.clear_corrections();
  const OperatorCosts plain(profile);
  auto* const gemm = const_cast<proto::OperatorEfficiency*>(find_efficiency(profile, "gemm"));
  auto& surface = *gemm->add_corrections();
  auto& axis = *surface.add_axes();
  axis.set_feature("n");
  for (const double point : {1024, 1025}) axis.add_points(point);
  for (const std::uint32_t factor : {1000, 2000}) surface.add_factors(factor);
  const OperatorCosts corrected(profile);
  for (const double m : {1.0, 100.0, 5000.0}) {
    EXPECT_DOUBLE_EQ(corrected.gemm(m, 1024, 4096).seconds, plain.gemm(m, 1024, 4096).seconds) << m;
    EXPECT_DOUBLE_EQ(corrected.gemm(m, 8192, 4096).seconds, 2 * plain.gemm(m, 8192, 4096).seconds) << m;
  }
  surface.set_factors(1, 1);
  const OperatorCosts cheap(profile);
  const KernelCost floor = cheap.gemm(5000, 8192, 4096);
  EXPECT_DOUBLE_EQ(floor.seconds, floor.flops / profile.dense_flops_bf16());
  const KernelCost read = cheap.gemm(1, 8192, 4096);
  EXPECT_DOUBLE_EQ(read.seconds, read.bytes / profile.memory_bandwidth());
}

// Where there are fewer tiles than multiprocessors a long k is cut, if the class says what that costs.
TEST(OpCost, ALongProductOfFewTilesIsCut) {
  proto::HardwareProfile profile = load_hardware("h200-sxm");
  auto* const gemm = const_cast<proto::OperatorEfficiency*>(find_efficiency(profile, "gemm"));
  gemm->clear_corrections();
  (*gemm->mutable_parameters())["split_seconds"] = 0;
  const double whole = OperatorCosts(profile).gemm(64, 256, 65536).seconds;
  const double many = OperatorCosts(profile).gemm(64, 65536, 1024).seconds;
  (*gemm->mutable_parameters())["split_seconds"] = 2e-6;
  EXPECT_LT(OperatorCosts(profile).gemm(64, 256, 65536).seconds, 0.5 * whole);
  EXPECT_EQ(OperatorCosts(profile).gemm(64, 65536, 1024).seconds, many);
  (*gemm->mutable_parameters())["split_seconds"] = 1;
  EXPECT_EQ(OperatorCosts(profile).gemm(64, 256, 65536).seconds, whole);
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

// The catalogue against every measured row, and what it says of its own errors.
TEST(OpCost, ErrorsOnMeasuredKernels) {
  const std::filesystem::path kernels =
      std::filesystem::path(TPSIM_SOURCE_DIR) / ".." / "shared" / "data" / "kernels";
  if (!std::filesystem::is_directory(kernels)) {
    GTEST_SKIP() << "no measured kernels at " << kernels << "; see shared/data/README.md";
  }
  for (const auto& [name, folder] :
       {std::pair{"h200-sxm", "h200_sxm"}, std::pair{"h100-sxm", "h100_sxm"}, std::pair{"b200", "b200_sxm"},
        std::pair{"gb200", "gb200"}, std::pair{"l40s", "l40s"}, std::pair{"a100-sxm", "a100_sxm"},
        std::pair{"rtx-pro-6000", "rtx_pro_6000_server"}}) {
    const proto::HardwareProfile profile = load_hardware(name);
    const OperatorCosts costs(profile);
    for (const std::string& operator_class : kernels::operator_classes()) {
      std::vector<double> ratios;
      for (const auto& row : kernels::operator_rows(kernels / folder, operator_class, profile))
        ratios.push_back(row.seconds / kernels::price(costs, operator_class, row));
      const auto [median, p90, rows] = kernels::relative_errors(ratios);
      if (rows < 10) continue;  // nobody measured it on this GPU
      // Collectives were measured at some dozens of sizes, on PCIe with others on the same links.
      const bool gemm = operator_class.starts_with("gemm");
      EXPECT_LT(median, rows < 100 ? 0.11 : 0.075) << name << " " << operator_class;
      EXPECT_LT(p90, rows < 100 ? 0.46 : gemm ? 0.25 : 0.24) << name << " " << operator_class;
      // Of rows left out, and so no better than of all.
      const proto::OperatorEfficiency& entry = *find_efficiency(profile, operator_class);
      EXPECT_LT(median, entry.median_error() + 0.01) << name << " " << operator_class;
      EXPECT_LT(p90, entry.p90_error() + 0.04) << name << " " << operator_class;
    }
  }
}

// Experts behind DeepEP and MegaMoE, with the distributions of the tables.
TEST(OpCost, ErrorsOnMeasuredExpertsBehindAnAllToAll) {
  const std::filesystem::path kernels =
      std::filesystem::path(TPSIM_SOURCE_DIR) / ".." / "shared" / "data" / "kernels";
  if (!std::filesystem::is_directory(kernels))
    GTEST_SKIP() << "no measured kernels at " << kernels << "; see shared/data/README.md";
  for (const auto& [name, folder] :
       {std::pair{"h200-sxm", "h200_sxm"}, std::pair{"h100-sxm", "h100_sxm"}, std::pair{"b200", "b200_sxm"},
        std::pair{"gb200", "gb200"}, std::pair{"b300", "b300_sxm"}}) {
    const proto::HardwareProfile profile = load_hardware(name);
    for (const char* table :
         {"wideep_context_moe_perf", "wideep_generation_moe_perf", "dsv4_megamoe_module_perf"}) {
      if (!std::filesystem::exists(kernels::table_file(kernels / folder, table))) continue;
      const kernels::GroupedRows rows = kernels::grouped_rows(kernels / folder, table);
      const auto experts = GroupedExperts::of(profile, rows.kernel);
      ASSERT_TRUE(experts) << name << " " << table;
      std::vector<double> ratios;
      for (const kernels::GroupedRow& row : rows.rows)
        ratios.push_back(row.seconds /
                         std::max(rows.least_seconds, experts->cost(row.work, rows.weight).seconds));
      const auto [median, p90, count] = kernels::relative_errors(ratios);
      EXPECT_GE(count, 30U) << name << " " << table;
      // MegaMoE's uneven draws of 16 and 32 ranks are few, and each its own.
      const bool mega = rows.kernel == GroupedKernel::kMegaMoe;
      EXPECT_LT(median, mega ? 0.07 : 0.045) << name << " " << table;
      EXPECT_LT(p90, mega ? 0.2 : 0.14) << name << " " << table;
    }
  }
}

}  // namespace
}  // namespace tpsim::rank
