// Which kernel SGLang multiplies a weight with on a GPU, and under which class its coefficients stand in the
// hardware catalogue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/hardware.pb.h"
#include "rank/config/architecture.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {

enum class MatrixClass : std::uint8_t {
  kGemm,           // torch's linear
  kGemmFp8,        // sgl_kernel's fp8_scaled_mm: a scale for each token and each output
  kGemmFp8Block,   // DeepGEMM: blocks of 128 x 128
  kGemmInt8,       // sgl_kernel's int8_scaled_mm
  kGemmInt4,       // Marlin: 4-bit (and, before Ada, 8-bit) weights, 16-bit input
  kGemmNvfp4,      // FlashInfer's fp4 products
  kMoe,            // Triton, a configuration tuned for the shape
  kMoeDefault,     // Triton, the default configuration: more tokens than experts
  kMoeDefaultFew,  // the same of at most as many tokens as experts: smaller tiles
  kMoeTrtllm,      // FlashInfer's TensorRT-LLM kernels
  kMoeFp8,         // fp8 weights and inputs: Triton, on Blackwell TensorRT-LLM
  kMoeInt4,        // Marlin
  kMoeMxfp4,       // mxfp4 weights, 16-bit inputs
  kMoeMxfp4Fp8,    // mxfp4 weights, mxfp8 inputs: TensorRT-LLM on Blackwell
  kMoeNvfp4,
  kMoeTritonKernels,  // mxfp4 weights, 16-bit inputs: triton_kernels on Hopper (rank/cost/triton_kernels.h)
};
inline constexpr std::size_t kMatrixClasses = 16;

struct MatrixClassRow {
  enum class Rate : std::uint8_t { k16Bit, kFp8, kFp4 };

  std::string_view name;  // of OperatorEfficiency.operator_class
  MatrixClass stands_in;  // whose coefficients count where a profile has none of this; itself: none
  Rate rate;              // of the products
  double input_bytes;     // of an element of the input as it is multiplied
  bool moe() const { return name.starts_with("moe"); }
  bool quantizes() const { return input_bytes < 2; }
};
const MatrixClassRow& matrix_class(MatrixClass id);

// The kernel of a linear layer.
MatrixClass linear_kernel(const WeightFormat& format, const proto::HardwareProfile& profile);

// The kernel of a rank's experts. `tokens`: of the pass, before they are spread over their experts.
// `trtllm`: SGLang's --moe-runner-backend is flashinfer_trtllm, given or chosen. `ep_size`: ranks with other
// experts.
MatrixClass expert_kernel(const WeightFormat& format, const proto::HardwareProfile& profile,
                          std::uint32_t experts, std::uint32_t width, double tokens, bool trtllm,
                          std::uint32_t ep_size = 1);

// Whether SGLang chooses flashinfer_trtllm by itself on this GPU, of a model with `chosen` among its facts.
bool chooses_trtllm(TrtllmExperts chosen, const WeightFormat& experts, const proto::HardwareProfile& profile);

}  // namespace tpsim::rank
