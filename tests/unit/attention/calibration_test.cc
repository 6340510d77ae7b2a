// The fitted prices against the measured kernels of shared/data and our own: errors of rows that no fit has
// seen. Skipped where the data is not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/kernels/attention_rows.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention::calibration_test {
namespace {

using kernels::AttentionKernel;

// Relative errors that a median row and nine rows in ten stay under.
struct Limits {
  double median, p90;
};

void expect_within(std::vector<double>& errors, const Limits& limits, const std::string& of) {
  ASSERT_GT(errors.size(), 8U) << of;
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2], p90 = errors[errors.size() * 9 / 10];
  std::cout << of << ": median error " << 100 * median << " %, p90 " << 100 * p90 << " %, " << errors.size()
            << " rows\n";
  EXPECT_LE(median, limits.median) << of;
  EXPECT_LE(p90, limits.p90) << of;
}

struct Measured {
  const char* gpu;
  const char* folder;
  const char* backend;
  const char* source;
  Limits extend, decode;
};

class AttentionCalibration : public ::testing::TestWithParam<Measured> {};

TEST_P(AttentionCalibration, RowsKeptAsideAreWithinTheLimits) {
  const std::filesystem::path kernels =
      std::filesystem::path(TPSIM_SHARED_DATA) / "kernels" / GetParam().folder;
  if (!std::filesystem::exists(kernels)) GTEST_SKIP() << kernels << " is not here";
  const proto::HardwareProfile profile = rank::load_hardware(GetParam().gpu);
  auto backend = create_attention_backend(GetParam().backend, profile, 1);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  for (const bool decode : {false, true}) {
    const std::string operator_class =
        std::string("attention.") + GetParam().backend + (decode ? ".decode" : ".extend");
    const PlanCost model(profile, operator_class, Residency::kHot);
    std::vector<double> errors;
    const AttentionKernel kernel = decode ? AttentionKernel::kDecode : AttentionKernel::kExtend;
    for (const auto& row : kernels::attention_rows(kernels, GetParam().source, kernel)) {
      if (!kernels::is_left_out(row, kernel)) continue;
      kernels::with_metadata(row, decode, [&](const ForwardMetadata& metadata) {
        planned.init_forward_metadata(metadata);
        const KernelCost cost = decode
                                    ? planned.decode_cost(model, planned.decode_plan(row.layer), row.layer)
                                    : planned.extend_cost(model, planned.extend_plan(row.layer), row.layer);
        errors.push_back(std::abs(cost.seconds / row.seconds - 1));
      });
    }
    expect_within(errors, decode ? GetParam().decode : GetParam().extend,
                  std::string(GetParam().gpu) + " " + operator_class);
  }
}

// Ragged batches with cached prefixes, measured on an H200 for this project: no equal lengths to hide behind.
// Prefills as SGLang runs them in pieces.
struct Ragged {
  const char* backend;
  Limits extend, decode;
};

class RaggedBatches : public ::testing::TestWithParam<Ragged> {};

TEST_P(RaggedBatches, HeldRowsAreWithinTheLimits) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  auto backend = create_attention_backend(GetParam().backend, profile, 1);
  for (const bool decode : {false, true}) {
    std::vector<double> errors;
    for (const auto& row :
         kernels::measured_rows(TPSIM_MEASURED_RAGGED, GetParam().backend,
                                decode ? AttentionKernel::kDecode : AttentionKernel::kExtend)) {
      if (!row.held || (!decode && !row.in_pieces)) continue;
      kernels::with_metadata(row, decode, [&](const ForwardMetadata& metadata) {
        backend->init_forward_metadata(metadata);
        const double seconds =
            decode ? backend->forward_decode(row.layer).seconds : backend->forward_extend(row.layer).seconds;
        errors.push_back(std::abs(seconds / row.seconds - 1));
      });
    }
    expect_within(
        errors, decode ? GetParam().decode : GetParam().extend,
        std::string("h200-sxm ") + GetParam().backend + (decode ? " decode" : " extend") + ", ragged");
  }
}

INSTANTIATE_TEST_SUITE_P(H200, RaggedBatches,
                         ::testing::Values(Ragged{"fa3", {0.04, 0.135}, {0.05, 0.175}},
                                           Ragged{"flashinfer", {0.045, 0.145}, {0.045, 0.135}},
                                           Ragged{"triton", {0.05, 0.17}, {0.05, 0.17}},
                                           // Prices every request by itself, without corrections.
                                           Ragged{"torch_native", {0.045, 0.1}, {0.05, 0.18}}));

// Rows of equal lengths, which no fit has seen since there are ragged ones. Decodes of that file read 64-bit
// tables of tokens (measure_attention.py), of which PyTorch widens nothing; SGLang's have 32.
TEST(OwnMeasurement, TorchNativePrefillsAreWithinAnEighth) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  auto backend = create_attention_backend("torch_native", profile, 1);
  std::vector<double> errors;
  for (const auto& row : kernels::measured_rows(TPSIM_MEASURED, "torch_native", AttentionKernel::kExtend)) {
    kernels::with_metadata(row, /*decode=*/false, [&](const ForwardMetadata& metadata) {
      backend->init_forward_metadata(metadata);
      errors.push_back(std::abs(backend->forward_extend(row.layer).seconds / row.seconds - 1));
    });
  }
  expect_within(errors, {0.125, 0.3}, "torch_native extend");
}

INSTANTIATE_TEST_SUITE_P(
    Measured, AttentionCalibration,
    ::testing::Values(
        Measured{"h200-sxm", "h200_sxm", "fa3", "fa3", {0.05, 0.155}, {0.04, 0.13}},
        Measured{"h200-sxm", "h200_sxm", "triton", "triton", {0.04, 0.14}, {0.03, 0.135}},
        Measured{"h100-sxm", "h100_sxm", "fa3", "fa3", {0.04, 0.15}, {0.03, 0.08}},
        Measured{"h100-sxm", "h100_sxm", "triton", "triton", {0.03, 0.12}, {0.03, 0.1}},
        Measured{"b200", "b200_sxm", "flashinfer", "flashinfer", {0.02, 0.08}, {0.04, 0.17}},
        Measured{"b200", "b200_sxm", "triton", "triton", {0.03, 0.13}, {0.05, 0.14}},
        Measured{"b200", "b200_sxm", "trtllm_mha", "trtllm_mha", {0.04, 0.14}, {0.04, 0.14}},
        Measured{"gb200", "gb200", "flashinfer", "flashinfer", {0.03, 0.12}, {0.04, 0.13}},
        Measured{"gb200", "gb200", "triton", "triton", {0.03, 0.11}, {0.04, 0.13}},
        Measured{"gb200", "gb200", "trtllm_mha", "trtllm_mha", {0.04, 0.14}, {0.03, 0.13}},
        Measured{
            "rtx-pro-6000", "rtx_pro_6000_server", "flashinfer", "flashinfer", {0.04, 0.16}, {0.05, 0.22}},
        Measured{"rtx-pro-6000", "rtx_pro_6000_server", "triton", "triton", {0.03, 0.16}, {0.02, 0.15}},
        Measured{"l40s", "l40s", "flashinfer", "flashinfer", {0.05, 0.18}, {0.04, 0.19}},
        Measured{"l40s", "l40s", "triton", "triton", {0.04, 0.18}, {0.02, 0.09}},
        Measured{"a100-sxm", "a100_sxm", "flashinfer", "flash_attention", {0.03, 0.14}, {0.03, 0.16}}));

}  // namespace
}  // namespace tpsim::attention::calibration_test
