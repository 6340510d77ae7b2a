#include "attention/sparse_kernels.h"

#include <fmt/format.h>

#include <array>

#include "proto/base/error.h"

namespace tpsim::attention {
namespace {

using enum GpuGeneration;

// What a kernel is for.
struct KernelRow {
  SparseKernel kernel;
  std::string_view name;
  GpuGenerations devices;
  bool decodes = true;  // prefill all do
  bool wide = true;     // reads a 16-bit cache
  bool fp8 = false;     // reads an fp8 cache, or has it widened
};
constexpr GpuGenerations kFlashMla = {kHopper, kBlackwell};
constexpr std::array<KernelRow, 12> kRows = {{
    {.kernel = SparseKernel::kFlashMlaSparse, .name = "flashmla_sparse", .devices = kFlashMla, .fp8 = true},
    {SparseKernel::kFlashMlaSparseQ8, "flashmla_sparse_q8", {kHopper}, false, true, true},
    {SparseKernel::kFlashMlaKv, "flashmla_kv", kFlashMla, true, false, true},
    {SparseKernel::kFlashMlaAuto, "flashmla_auto", kFlashMla, false, true, true},
    {SparseKernel::kFlashInferSparseMla, "flashinfer_sparse_mla", {kBlackwellSm120}, true, false, true},
    {SparseKernel::kTritonSparseMla,
     "triton_sparse_mla",
     {kHopper, kBlackwell, kBlackwellSm120},
     false,
     true,
     true},
    {.kernel = SparseKernel::kFa3, .name = "fa3", .devices = {kHopper}},
    {SparseKernel::kTilelang, "tilelang", {kHopper, kBlackwell, kBlackwellSm120, kRocm}, true, true, true},
    {SparseKernel::kTriton, "triton", {kRocm}, true, true, true},
    {SparseKernel::kAiter, "aiter", {kRocm}, true, true, true},
    {SparseKernel::kTrtllm, "trtllm", {kBlackwell}, true, true, true},
    {.kernel = SparseKernel::kIntelXpu, .name = "intel_xpu", .devices = {kXpu}},
}};

const KernelRow& row_of(SparseKernel kernel) {
  for (const KernelRow& row : kRows) {
    if (row.kernel == kernel) return row;
  }
  return kRows.front();
}

// One phase of a request.
struct Phase {
  const SparseKernelRequest& request;
  bool decode;

  const std::string& flag() const { return decode ? request.decode_flag : request.prefill_flag; }
  bool fp8() const { return is_fp8(request.kv_format); }
  bool glm_sm120_fp8() const { return request.glm && request.generation == kBlackwellSm120 && fp8(); }

  // Why `row` cannot serve the phase; empty where it can.
  std::string obstacle(const KernelRow& row) const {
    const SparseKernel kernel = row.kernel;
    if (!row.devices.contains(request.generation))
      return fmt::format("its kernels are for {} only", row.devices.names());
    if (decode && !row.decodes) return "is for prefill only";
    if (fp8() && !row.fp8) return "cannot read the fp8 latents";
    if (decode && fp8() && kernel == SparseKernel::kFlashMlaSparse) return "decode reads 16-bit latents";
    if (!fp8() && kernel == SparseKernel::kFlashMlaKv)
      return "with a 16-bit KV cache SGLang rounds the whole cache to fp8 again in every layer";
    if (!fp8() && !row.wide) return "reads an fp8 KV cache only";
    if (kernel == SparseKernel::kFlashInferSparseMla && !request.glm) return "is for GLM-5 only";
    if (glm_sm120_fp8() && kernel != SparseKernel::kFlashInferSparseMla &&
        kernel != SparseKernel::kTritonSparseMla)
      return "SGLang serves GLM-5 with an fp8 KV cache on this GPU by other kernels";
    constexpr std::uint32_t kTritonHeads = 32;
    if (kernel == SparseKernel::kTritonSparseMla && request.num_q_heads > kTritonHeads)
      return fmt::format("serves up to {} heads of a GPU, and these are {}", kTritonHeads,
                         request.num_q_heads);
    if (kernel == SparseKernel::kFlashMlaSparseQ8 && request.mixed_chunk)
      return "refuses --enable-mixed-chunk";
    return "";
  }
  // "; use a, b", with --kv-cache-dtype where another would do.
  std::string instead(const KernelRow& wanted) const {
    std::string names;
    for (const KernelRow& row : kRows) {
      if (obstacle(row).empty()) names += (names.empty() ? "; use " : ", ") + std::string(row.name);
    }
    const bool format = wanted.devices.contains(request.generation) && (fp8() ? !wanted.fp8 : !wanted.wide);
    if (format || (fp8() && decode && wanted.kernel == SparseKernel::kFlashMlaSparse))
      names += fmt::format("{}--kv-cache-dtype {}", names.empty() ? "; use " : ", or ",
                           fp8() ? "bf16" : "fp8_e4m3");
    return names;
  }
  void check(const KernelRow& row) const {
    if (const std::string reason = obstacle(row); !reason.empty())
      throw_user_error("{} {}: {}{}", flag(), row.name, reason, instead(row));
  }
  SparseKernel parse(const std::string& name) const {
    for (const KernelRow& row : kRows) {
      if (row.name == name) return row.kernel;
    }
    std::string names;
    for (const KernelRow& row : kRows) names += (names.empty() ? "" : ", ") + std::string(row.name);
    throw_user_error("{} {}: not a kernel of sparse attention; use one of {}", flag(), name, names);
  }
};

SparseKernels defaults(const SparseKernelRequest& request) {
  const bool fp8 = is_fp8(request.kv_format);
  const bool blackwell = request.generation == kBlackwell || request.generation == kBlackwellSm120;
  if (request.generation == kRocm) return {SparseKernel::kTriton, SparseKernel::kTriton};
  if (request.generation == kXpu) return {SparseKernel::kIntelXpu, SparseKernel::kIntelXpu};
  if (request.generation == kBlackwellSm120 && request.glm && fp8)
    return {SparseKernel::kFlashInferSparseMla, SparseKernel::kFlashInferSparseMla};
  if (fp8 && blackwell) return {SparseKernel::kTrtllm, SparseKernel::kTrtllm};
  if (fp8) return {SparseKernel::kFlashMlaKv, SparseKernel::kFlashMlaKv};
  return {SparseKernel::kFlashMlaSparse, blackwell ? SparseKernel::kTrtllm : SparseKernel::kFa3};
}

}  // namespace

std::string_view to_string(SparseKernel kernel) { return row_of(kernel).name; }

bool walks_whole_list(SparseKernel kernel) {
  return kernel == SparseKernel::kFlashMlaKv || kernel == SparseKernel::kFlashMlaSparse ||
         kernel == SparseKernel::kFlashMlaSparseQ8;
}

bool reads_raw_latents(SparseKernel kernel) {
  return kernel == SparseKernel::kTrtllm || kernel == SparseKernel::kTilelang ||
         kernel == SparseKernel::kTriton || kernel == SparseKernel::kAiter;
}

SparseKernels choose_sparse_kernels(const SparseKernelRequest& request) {
  const NumberFormat format = request.kv_format;
  if (format == NumberFormat::kFp8E5M2 || format == NumberFormat::kFp4E2M1)
    throw_user_error(
        "--kv-cache-dtype {}: sparse attention keeps its latents in bf16 or fp8_e4m3; use one of them",
        to_string(format));
  const Phase prefill{request, false};
  const Phase decode{request, true};
  SparseKernels kernels = defaults(request);
  if (request.prefill) kernels.prefill = prefill.parse(*request.prefill);
  if (request.decode) kernels.decode = decode.parse(*request.decode);
  prefill.check(row_of(kernels.prefill));
  decode.check(row_of(kernels.decode));
  if (is_fp8(format) && reads_raw_latents(kernels.prefill) != reads_raw_latents(kernels.decode))
    throw_user_error(
        "{} {}: {} reads fp8 latents {} scales, and {} of decode reads them {}; name kernels that agree, or "
        "--kv-cache-dtype bf16",
        request.prefill_flag, to_string(kernels.prefill), to_string(kernels.prefill),
        reads_raw_latents(kernels.prefill) ? "without" : "with", to_string(kernels.decode),
        reads_raw_latents(kernels.decode) ? "without" : "with");
  return kernels;
}

std::uint32_t sparse_token_bytes(const SparseKernels& kernels, NumberFormat kv_format, std::uint32_t latent,
                                 std::uint32_t rope) {
  constexpr std::uint32_t kScaled = 128;  // elements
  if (!is_fp8(kv_format) || reads_raw_latents(kernels.decode))
    return static_cast<std::uint32_t>(stored_bytes(kv_format, latent + rope));
  return latent + latent / kScaled * 4 + rope * 2;
}

SparseKernel extend_kernel(SparseKernel prefill, GpuGeneration generation, bool fp8_kv,
                           std::uint64_t total_kv_tokens, std::uint64_t total_q_tokens) {
  if (prefill != SparseKernel::kFlashMlaAuto) return prefill;
  if (!fp8_kv) return SparseKernel::kFlashMlaSparse;
  // With many cached tokens for each new one, widening the cache first does not pay.
  const bool widen = generation == kBlackwell && total_kv_tokens < total_q_tokens * 512;
  return widen ? SparseKernel::kFlashMlaSparse : SparseKernel::kFlashMlaKv;
}

}  // namespace tpsim::attention
