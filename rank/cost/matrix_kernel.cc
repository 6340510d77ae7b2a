#include "rank/cost/matrix_kernel.h"

#include <algorithm>
#include <array>

#include "proto/coefficients.h"
#include "rank/cost/expert_tuning.h"

namespace tpsim::rank {
namespace {

using Kind = WeightFormat::Kind;
using Rate = MatrixClassRow::Rate;

// In the order of MatrixClass.
constexpr std::array<MatrixClassRow, kMatrixClasses> kRows = {{
    {"gemm", MatrixClass::kGemm, Rate::k16Bit, 2},
    {"gemm.fp8", MatrixClass::kGemm, Rate::kFp8, 1},
    {"gemm.fp8_block", MatrixClass::kGemmFp8, Rate::kFp8, 1},
    {"gemm.int8", MatrixClass::kGemmFp8, Rate::kFp8, 1},
    {"gemm.int4", MatrixClass::kGemm, Rate::k16Bit, 2},
    {"gemm.nvfp4", MatrixClass::kGemm, Rate::kFp4, 0.5625},
    {"moe", MatrixClass::kMoe, Rate::k16Bit, 2},
    {"moe.default_config", MatrixClass::kMoe, Rate::k16Bit, 2},
    {"moe.default_config_few", MatrixClass::kMoeDefault, Rate::k16Bit, 2},
    {"moe.flashinfer_trtllm", MatrixClass::kMoe, Rate::k16Bit, 2},
    {"moe.fp8_block", MatrixClass::kMoe, Rate::kFp8, 1},
    {"moe.int4_wo", MatrixClass::kMoe, Rate::k16Bit, 2},
    {"moe.w4a16_mxfp4", MatrixClass::kMoe, Rate::k16Bit, 2},
    {"moe.w4a8_mxfp4_mxfp8", MatrixClass::kMoeMxfp4, Rate::kFp8, 1},
    {"moe.nvfp4", MatrixClass::kMoe, Rate::kFp4, 0.5625},
    {"moe.mxfp4.triton_kernels", MatrixClass::kMoeMxfp4, Rate::k16Bit, 2},
}};

bool has(const proto::HardwareProfile& profile, MatrixClass id) {
  return find_efficiency(profile, matrix_class(id).name) != nullptr;
}

}  // namespace

const MatrixClassRow& matrix_class(MatrixClass id) { return kRows[static_cast<std::size_t>(id)]; }

MatrixClass linear_kernel(const WeightFormat& format, const proto::HardwareProfile& profile) {
  switch (format.kind) {
    case Kind::k16Bit:
      return MatrixClass::kGemm;
    case Kind::kFp8:
      // can_auto_enable_marlin_fp8: without fp8 arithmetic the weights are widened in the kernel.
      if (profile.dense_flops_fp8() == 0) return MatrixClass::kGemmInt4;
      // Groups along the inputs: mxfp8's, which DeepGEMM multiplies like blocks (SGLang 0.5.23).
      return format.block_n > 1 || format.block_k > 1 ? MatrixClass::kGemmFp8Block : MatrixClass::kGemmFp8;
    case Kind::kInt8:
      return MatrixClass::kGemmInt8;
    case Kind::kInt4:
    case Kind::kMxfp4:
      return MatrixClass::kGemmInt4;
    case Kind::kNvfp4:
      return MatrixClass::kGemmNvfp4;
  }
  return MatrixClass::kGemm;
}

MatrixClass expert_kernel(const WeightFormat& format, const proto::HardwareProfile& profile,
                          std::uint32_t experts, std::uint32_t width, double tokens, bool trtllm,
                          std::uint32_t ep_size) {
  switch (format.kind) {
    case Kind::k16Bit:
      if (trtllm && has(profile, MatrixClass::kMoeTrtllm)) return MatrixClass::kMoeTrtllm;
      if (has_tuned_experts(profile.name(), experts, width)) return MatrixClass::kMoe;
      // get_default_config of SGLang's fused_moe_triton_config.py (0.5.12 to 0.5.23)
      return tokens <= experts ? MatrixClass::kMoeDefaultFew : MatrixClass::kMoeDefault;
    case Kind::kFp8:
      return profile.dense_flops_fp8() == 0 ? MatrixClass::kMoeInt4 : MatrixClass::kMoeFp8;
    case Kind::kInt8:
      return MatrixClass::kMoeFp8;
    case Kind::kInt4:
      return MatrixClass::kMoeInt4;
    case Kind::kMxfp4:
      if (ep_size == 1 && has(profile, MatrixClass::kMoeTritonKernels)) return MatrixClass::kMoeTritonKernels;
      return has(profile, MatrixClass::kMoeMxfp4Fp8) ? MatrixClass::kMoeMxfp4Fp8 : MatrixClass::kMoeMxfp4;
    case Kind::kNvfp4:
      return MatrixClass::kMoeNvfp4;
  }
  return MatrixClass::kMoe;
}

bool chooses_trtllm(TrtllmExperts chosen, const WeightFormat& experts,
                    const proto::HardwareProfile& profile) {
  if (!has(profile, MatrixClass::kMoeTrtllm)) return false;
  if (experts.kind == Kind::kNvfp4) return chosen != TrtllmExperts::kNone;
  if (experts.kind == Kind::kFp8) return chosen >= TrtllmExperts::kFp8OrNvfp4;
  return experts.kind == Kind::k16Bit && chosen == TrtllmExperts::k16BitFp8OrNvfp4;
}

}  // namespace tpsim::rank
