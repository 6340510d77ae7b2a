#include "attention/sparse_kernels.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::attention {
namespace {

constexpr std::array<std::pair<SparseKernel, std::string_view>, 6> kNames = {{
    {SparseKernel::kFlashMlaSparse, "flashmla_sparse"},
    {SparseKernel::kFlashMlaKv, "flashmla_kv"},
    {SparseKernel::kFlashMlaAuto, "flashmla_auto"},
    {SparseKernel::kFa3, "fa3"},
    {SparseKernel::kTrtllm, "trtllm"},
    {SparseKernel::kTilelang, "tilelang"},
}};
// Names that SGLang knows besides.
constexpr std::array<std::string_view, 6> kOthers = {
    "flashmla_sparse_q8", "flashinfer_sparse_mla", "triton_sparse_mla", "triton", "aiter", "intel_xpu"};

std::string names() {
  std::string all;
  for (const auto& [kernel, name] : kNames) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

SparseKernel parse(const std::string& name, const std::string& flag) {
  for (const auto& [kernel, known] : kNames) {
    if (known == name) return kernel;
  }
  for (const std::string_view other : kOthers) {
    if (other == name)
      throw_user_error("{} {}: this kernel of SGLang is not implemented in tpsim; use one of {}", flag, name,
                       names());
  }
  throw_user_error("{} {}: not a kernel of sparse attention; use one of {}", flag, name, names());
}

bool is_fp8(NumberFormat format) { return format == NumberFormat::kFp8E4M3; }

// Kernels that read fp8 latents without scales.
bool reads_raw(SparseKernel kernel) {
  return kernel == SparseKernel::kTrtllm || kernel == SparseKernel::kTilelang;
}

void check_device(SparseKernel kernel, const std::string& flag, const SparseKernelRequest& request) {
  if (kernel == SparseKernel::kFa3 && request.generation != GpuGeneration::kHopper)
    throw_user_error("{} fa3: FlashAttention 3 needs a Hopper GPU; use trtllm or flashmla_sparse", flag);
  if (kernel == SparseKernel::kTrtllm && request.generation != GpuGeneration::kBlackwell)
    throw_user_error("{} trtllm: its kernels are for Blackwell GPUs; use {}", flag,
                     is_fp8(request.kv_format) ? "flashmla_kv" : "flashmla_sparse or fa3");
  if (kernel == SparseKernel::kFa3 && is_fp8(request.kv_format))
    throw_user_error("{} fa3: cannot read the fp8 latents; use flashmla_kv, or --kv-cache-dtype bf16", flag);
  if (kernel == SparseKernel::kFlashMlaKv && !is_fp8(request.kv_format))
    throw_user_error(
        "{} flashmla_kv: with a 16-bit KV cache SGLang rounds the whole cache to fp8 again in every layer; "
        "use "
        "--kv-cache-dtype fp8_e4m3, or flashmla_sparse",
        flag);
}

}  // namespace

std::string_view to_string(SparseKernel kernel) {
  for (const auto& [known, name] : kNames) {
    if (known == kernel) return name;
  }
  return "";
}

NumberFormat default_sparse_kv_format(GpuGeneration generation) {
  return generation == GpuGeneration::kBlackwell ? NumberFormat::kFp8E4M3 : NumberFormat::kBf16;
}

SparseKernels choose_sparse_kernels(const SparseKernelRequest& request) {
  const NumberFormat format = request.kv_format;
  if (format == NumberFormat::kFp8E5M2 || format == NumberFormat::kFp4E2M1)
    throw_user_error(
        "--kv-cache-dtype {}: sparse attention keeps its latents in bf16 or fp8_e4m3; use one of them",
        to_string(format));
  const bool fp8 = is_fp8(format);
  const bool blackwell = request.generation == GpuGeneration::kBlackwell;
  SparseKernels kernels;
  if (fp8) {
    kernels.prefill = kernels.decode = blackwell ? SparseKernel::kTrtllm : SparseKernel::kFlashMlaKv;
  } else {
    kernels = {SparseKernel::kFlashMlaSparse, blackwell ? SparseKernel::kTrtllm : SparseKernel::kFa3};
  }
  if (request.prefill) kernels.prefill = parse(*request.prefill, request.prefill_flag);
  if (request.decode) kernels.decode = parse(*request.decode, request.decode_flag);
  check_device(kernels.prefill, request.prefill_flag, request);
  check_device(kernels.decode, request.decode_flag, request);
  if (kernels.decode == SparseKernel::kFlashMlaAuto)
    throw_user_error("{} flashmla_auto: chooses among the kernels of prefill only; use {}",
                     request.decode_flag, fp8 ? "flashmla_kv" : "flashmla_sparse");
  if (fp8 && kernels.decode == SparseKernel::kFlashMlaSparse)
    throw_user_error(
        "{} flashmla_sparse: decode reads 16-bit latents; use flashmla_kv, or --kv-cache-dtype bf16",
        request.decode_flag);
  if (fp8 && reads_raw(kernels.prefill) != reads_raw(kernels.decode))
    throw_user_error(
        "{} {}: {} reads fp8 latents {} scales, and {} of decode reads them {}; name kernels that agree, or "
        "--kv-cache-dtype bf16",
        request.prefill_flag, to_string(kernels.prefill), to_string(kernels.prefill),
        reads_raw(kernels.prefill) ? "without" : "with", to_string(kernels.decode),
        reads_raw(kernels.decode) ? "without" : "with");
  return kernels;
}

std::uint32_t sparse_token_bytes(const SparseKernels& kernels, NumberFormat kv_format, std::uint32_t latent,
                                 std::uint32_t rope) {
  constexpr std::uint32_t kScaled = 128;  // elements
  if (!is_fp8(kv_format) || reads_raw(kernels.decode))
    return static_cast<std::uint32_t>(stored_bytes(kv_format, latent + rope));
  return latent + latent / kScaled * 4 + rope * 2;
}

SparseKernel extend_kernel(SparseKernel prefill, GpuGeneration generation, bool fp8_kv,
                           std::uint64_t total_kv_tokens, std::uint64_t total_q_tokens) {
  if (prefill != SparseKernel::kFlashMlaAuto) return prefill;
  if (!fp8_kv) return SparseKernel::kFlashMlaSparse;
  // With many cached tokens for each new one, widening the cache first does not pay.
  const bool widen = generation == GpuGeneration::kBlackwell && total_kv_tokens < total_q_tokens * 512;
  return widen ? SparseKernel::kFlashMlaSparse : SparseKernel::kFlashMlaKv;
}

}  // namespace tpsim::attention
