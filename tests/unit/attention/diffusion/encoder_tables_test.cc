// Full attention of every GPU that was measured (../shared/data/kernels, encoder_attention_perf: heads of 64
// to 80), which nothing but the rates of narrow heads is fitted to. Skipped where the data is not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "attention/diffusion/dense_kernel.h"
#include "launch/lab/kernels/kernel_table.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention::encoder_tables_test {
namespace {

struct Measured {
  const char* gpu;
  const char* folder;
  const DenseKernelDescription* kernel;
  double limit;  // of the median error
};

class EncoderTables : public ::testing::TestWithParam<Measured> {};

TEST_P(EncoderTables, LongSequences) {
  const std::filesystem::path table = std::filesystem::path(TPSIM_SHARED_DATA) / "kernels" /
                                      GetParam().folder / "encoder_attention_perf.csv.gz";
  if (!std::filesystem::exists(table)) GTEST_SKIP() << table << " is not here";
  const kernels::KernelTable rows(table);
  const DenseKernel kernel(rank::load_hardware(GetParam().gpu), *GetParam().kernel);
  for (const std::uint32_t head_dim : {64U, 80U}) {
    // SGLang's Triton kernel for encoders reads such heads unaligned; those of diffusion backends have none.
    if (head_dim == 80 && GetParam().kernel == &kTritonKernel) continue;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows.number(i, "head_dim") != head_dim || rows.number(i, "isl") < 2048) continue;
      DiffusionCall call;
      call.batch = rows.number(i, "batch_size");
      call.queries = call.keys = rows.number(i, "isl");
      call.heads = static_cast<std::uint32_t>(rows.number(i, "num_heads"));
      call.head_dim = head_dim;
      call.layers = 1;
      ratios.push_back(kernel.all(call).seconds / (rows.number(i, "latency_ms") * 1e-3));
    }
    ASSERT_GT(ratios.size(), 100U);
    std::vector<double> errors;
    for (const double ratio : ratios) errors.push_back(std::abs(ratio - 1));
    std::sort(ratios.begin(), ratios.end());
    std::sort(errors.begin(), errors.end());
    std::cout << GetParam().gpu << " heads of " << head_dim << ": predicted / measured "
              << ratios[ratios.size() / 2] << ", median error " << 100 * errors[errors.size() / 2] << " %\n";
    EXPECT_LE(errors[errors.size() / 2], GetParam().limit) << head_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, EncoderTables,
                         ::testing::Values(Measured{"h100-sxm", "h100_sxm", &kFlashKernel, 0.1},
                                           Measured{"h200-sxm", "h200_sxm", &kFlashKernel, 0.1},
                                           Measured{"b200", "b200_sxm", &kFlashKernel, 0.1},
                                           Measured{"gb200", "gb200", &kFlashKernel, 0.1},
                                           Measured{"b300", "b300_sxm", &kTritonKernel, 0.25},
                                           Measured{"l40s", "l40s", &kTritonKernel, 0.25},
                                           Measured{"rtx-pro-6000", "rtx_pro_6000_server", &kTritonKernel,
                                                    0.25}),
                         [](const auto& tested) {
                           std::string name = tested.param.gpu;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tpsim::attention::encoder_tables_test
