// MLA's batched products (rank/llm/mla_cost.h): their corrections, growth and roofline, and their price
// against mla_bmm_perf where shared/data has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "launch/lab/kernels/kernel_table.h"
#include "proto/coefficients.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/config/weight_format.h"
#include "rank/cost/hardware.h"
#include "rank/llm/mla_cost.h"

namespace tpsim::rank {
namespace {

constexpr const char* kGpus[] = {"h200-sxm", "h100-sxm", "b200", "gb200", "rtx-pro-6000", "l40s", "a100-sxm"};

struct Products {
  Products(const std::string& gpu, bool fp8)
      : profile(load_hardware(gpu)),
        name(fp8 ? "mla_bmm_fp8" : "mla_bmm"),
        c(operator_coefficients(profile, name)),
        corrections(find_efficiency(profile, name), kBatchedGemmFeatures),
        bytes(fp8 ? 1 : 2) {}

  double seconds(double heads, double rows, bool into_latent) const {
    return batched_gemm(c, corrections, profile, heads, rows, into_latent ? 512 : 128,
                        into_latent ? 128 : 512, bytes)
        .seconds;
  }

  proto::HardwareProfile profile;
  std::string name;
  OperatorCoefficients c;
  Corrections corrections;
  double bytes;
};

// Up to twice what was measured.
TEST(MlaProducts, GrowWithTheRowsAndStayAboveTheRoofline) {
  const ModelConfig model = load_model_config("deepseek-v3");
  for (const char* gpu : kGpus) {
    const proto::HardwareProfile profile = load_hardware(gpu);
    for (const bool fp8 : {false, true}) {
      WeightFormat format;
      if (fp8) format.kind = WeightFormat::Kind::kFp8;
      for (const std::uint32_t tp : {1U, 4U, 8U, 16U, 32U}) {
        const MlaCosts costs(model, make_shard(model, tp, 0), profile, format);
        const double weights = 128.0 / tp * 2 * 512 * 128 * (fp8 ? 1 : 2);
        double before = weights / profile.memory_bandwidth();
        for (double rows = 1; rows <= 16384; rows = std::ceil(rows * 1.1)) {
          const double seconds = costs.absorbed(rows).seconds;
          EXPECT_GE(seconds, 0.995 * before)
              << gpu << " fp8 " << fp8 << " tp " << tp << ", " << rows << " rows";
          before = std::max(before, seconds);
        }
      }
    }
  }
}

// PyTorch multiplies no fp8 on AMD's GPUs before gfx950: SGLang widens the weights in front of each product.
TEST(MlaProducts, WeightsAreWidenedWhereFp8IsNotMultiplied) {
  const ModelConfig model = load_model_config("deepseek-v3");
  WeightFormat fp8;
  fp8.kind = WeightFormat::Kind::kFp8;
  for (const auto& [gpu, widens] :
       {std::pair{"mi300x", true}, {"mi325x", true}, {"mi355x", false}, {"h200-sxm", false}}) {
    const proto::HardwareProfile profile = load_hardware(gpu);
    const OperatorCosts costs(profile);
    const KernelCost cost = MlaCosts(model, make_shard(model, 8, 0), profile, fp8).widening(costs);
    EXPECT_EQ(cost.launches, widens ? 4U : 0U) << gpu;
    EXPECT_EQ(cost.seconds > 0, widens) << gpu;
    EXPECT_EQ(MlaCosts(model, make_shard(model, 8, 0), profile, WeightFormat()).widening(costs).seconds, 0);
  }
}

// Weights of one layer stay in L2 between the calls of a benchmark, which the formula, for a model whose
// layers follow each other, does not know: only products that are larger than L2 are compared.
TEST(MlaProducts, AreAsLongAsMeasuredWhereL2HoldsThemNot) {
  const std::filesystem::path kernels = std::filesystem::path(TPSIM_SOURCE_DIR) / "../shared/data/kernels";
  if (!std::filesystem::exists(kernels)) GTEST_SKIP() << kernels << " is not here";
  for (const auto& [gpu, folder] : {std::pair{"h200-sxm", "h200_sxm"}, {"h100-sxm", "h100_sxm"}}) {
    const kernels::KernelTable table(kernels / folder / "mla_bmm_perf.csv.gz");
    for (const bool fp8 : {false, true}) {
      const Products products(gpu, fp8);
      std::vector<double> ratios;
      for (std::size_t i = 0; i < table.size(); ++i) {
        if ((table.text(i, "bmm_dtype") == "fp8") != fp8) continue;
        const double heads = table.number(i, "num_heads");
        const double rows = table.number(i, "num_tokens");
        if (heads * rows * 640 * products.bytes < 1.5 * products.profile.l2_bytes()) continue;
        const double price = products.seconds(heads, rows, table.text(i, "op_name") == "mla_gen_pre");
        ratios.push_back(table.number(i, "latency_ms") / 1e3 / price);
      }
      const kernels::RelativeErrors errors = kernels::relative_errors(ratios);
      ASSERT_GT(errors.rows, 20U);
      std::cout << gpu << " " << products.name << ": median error " << 100 * errors.median << " %, p90 "
                << 100 * errors.p90 << " %, " << errors.rows << " rows\n";
      EXPECT_LE(errors.median, 0.06);
    }
  }
}

}  // namespace
}  // namespace tpsim::rank
