// The fitted costs against the measured kernels of shared/data: the median error of every pair of GPU and
// backend that has measurements stays under 25 %. Skipped where the data is not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/registry.h"
#include "launch/kernels/attention_rows.h"
#include "rank/model/hardware.h"

namespace tpsim::attention {
namespace {

struct Measured {
  const char* gpu;
  const char* folder;
  const char* backend;
  const char* source;
};

class AttentionCalibration : public ::testing::TestWithParam<Measured> {};

TEST_P(AttentionCalibration, MedianErrorIsUnderAQuarter) {
  const std::filesystem::path kernels =
      std::filesystem::path(TPSIM_SHARED_DATA) / "kernels" / GetParam().folder;
  if (!std::filesystem::exists(kernels)) GTEST_SKIP() << kernels << " is not here";
  const proto::HardwareProfile profile = rank::load_hardware(GetParam().gpu);
  auto backend = create_attention_backend(GetParam().backend, profile, 1);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  for (const bool decode : {false, true}) {
    const auto rows = calibration::attention_rows(kernels, GetParam().source, decode, 7);
    ASSERT_GT(rows.size(), 50u);
    const std::string operator_class =
        std::string("attention.") + GetParam().backend + (decode ? ".decode" : ".extend");
    const PlanCost model(profile, operator_class, Residency::kHot);
    std::vector<double> errors;
    for (const auto& row : rows) {
      calibration::with_metadata(row, decode, [&](const ForwardMetadata& metadata) {
        planned.init_forward_metadata(metadata);
        const KernelCost cost = decode
                                    ? planned.decode_cost(model, planned.decode_plan(row.layer), row.layer)
                                    : planned.extend_cost(model, planned.extend_plan(row.layer), row.layer);
        errors.push_back(std::abs(cost.seconds / row.seconds - 1));
      });
    }
    std::sort(errors.begin(), errors.end());
    const double median = errors[errors.size() / 2];
    std::cout << GetParam().gpu << " " << GetParam().backend << (decode ? " decode" : " extend")
              << ": median error " << 100 * median << " %, p90 " << 100 * errors[errors.size() * 9 / 10]
              << " %, " << errors.size() << " rows\n";
    EXPECT_LT(median, 0.25);
  }
}

// Ragged batches, cached prefixes and mixed batches, measured on an H200 for this project: no equal lengths
// to hide behind.
class OwnMeasurement : public ::testing::TestWithParam<const char*> {};

TEST_P(OwnMeasurement, RaggedBatchesAndCachedPrefixesAreWithinAQuarter) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  auto backend = create_attention_backend(GetParam(), profile, 1);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  for (const bool decode : {false, true}) {
    for (const bool ragged : {false, true}) {
      std::vector<double> errors;
      for (const auto& row : calibration::measured_rows(TPSIM_MEASURED, GetParam(), decode)) {
        const bool equal =
            std::all_of(row.lengths.begin(), row.lengths.end(),
                        [&](auto n) { return n == row.lengths[0]; }) &&
            std::all_of(row.prefixes.begin(), row.prefixes.end(), [](auto n) { return n == 0; });
        if (equal == ragged) continue;
        calibration::with_metadata(row, decode, [&](const ForwardMetadata& metadata) {
          planned.init_forward_metadata(metadata);
          const double seconds =
              decode ? planned.forward_decode(row.layer).seconds : planned.forward_extend(row.layer).seconds;
          errors.push_back(std::abs(seconds / row.seconds - 1));
        });
      }
      ASSERT_GT(errors.size(), 8u);
      std::sort(errors.begin(), errors.end());
      const double median = errors[errors.size() / 2];
      std::cout << "h200-sxm " << GetParam() << (decode ? " decode" : " extend")
                << (ragged ? ", ragged" : ", equal") << ": median error " << 100 * median << " %, p90 "
                << 100 * errors[errors.size() * 9 / 10] << " %, " << errors.size() << " rows\n";
      EXPECT_LT(median, 0.25);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(H200, OwnMeasurement, ::testing::Values("flashinfer", "triton", "torch_native"));

INSTANTIATE_TEST_SUITE_P(
    Measured, AttentionCalibration,
    ::testing::Values(
        Measured{"h200-sxm", "h200_sxm", "fa3", "fa3"}, Measured{"h200-sxm", "h200_sxm", "triton", "triton"},
        Measured{"h100-sxm", "h100_sxm", "fa3", "fa3"}, Measured{"h100-sxm", "h100_sxm", "triton", "triton"},
        Measured{"b200", "b200_sxm", "flashinfer", "flashinfer"},
        Measured{"b200", "b200_sxm", "triton", "triton"},
        Measured{"b200", "b200_sxm", "trtllm_mha", "trtllm_mha"},
        Measured{"gb200", "gb200", "flashinfer", "flashinfer"},
        Measured{"gb200", "gb200", "triton", "triton"},
        Measured{"gb200", "gb200", "trtllm_mha", "trtllm_mha"},
        Measured{"rtx-pro-6000", "rtx_pro_6000_server", "flashinfer", "flashinfer"},
        Measured{"rtx-pro-6000", "rtx_pro_6000_server", "triton", "triton"},
        Measured{"l40s", "l40s", "flashinfer", "flashinfer"}, Measured{"l40s", "l40s", "triton", "triton"},
        Measured{"a100-sxm", "a100_sxm", "flashinfer", "flash_attention"}));

}  // namespace
}  // namespace tpsim::attention
