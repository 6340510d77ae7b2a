// Which kernels carry out DeepSeek sparse attention: --nsa-prefill-backend and --nsa-decode-backend, which
// newer releases call --dsa-prefill-backend and --dsa-decode-backend.
//
// Source: SGLang 0.5.23, arg_groups/fields/exec_.py (names), arg_groups/overrides.py
// (_dsa_split_backend_resolution: defaults by device and KV format; _check_dsa_backend_constraints),
// mem_cache/kv_cache_configurator.py (calculate_mla_kv_cache_dim: what is stored), layers/attention/
// dsa_backend.py (forward_extend, forward_decode, set_dsa_prefill_impl, the validations of
// flashmla_sparse_q8 and triton_sparse_mla) and kernels/ops/attention/flash_mla_sm120.py
// (_validate_flashinfer_sparse_mla_backend); 0.5.12 server_args.py (_set_default_nsa_backends), which agrees
// but for ROCm, where it took tilelang.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attention/gpu_generation.h"
#include "proto/base/number_format.h"

namespace tpsim::attention {

enum class SparseKernel : std::uint8_t {
  kFlashMlaSparse,       // 16-bit latents, one query token a block; an fp8 cache is widened before it
  kFlashMlaSparseQ8,     // prefill: queries and latents rounded to fp8 in every call
  kFlashMlaKv,           // fp8 latents with scales, from pages of 64; walks all top_k places
  kFlashMlaAuto,         // prefill: flashmla_sparse or flashmla_kv, by the batch
  kFlashInferSparseMla,  // SM120, GLM-5 with an fp8 cache
  kTritonSparseMla,      // prefill, up to 32 heads of a rank; an fp8 cache is widened before it
  kFa3,                  // FlashAttention 3 over pages of one token, 16 bit
  kTilelang,             // latents in 16 bit or in fp8 without scales
  kTriton,               // ROCm; the same
  kAiter,                // ROCm; the same
  kTrtllm,               // Blackwell; the same
  kIntelXpu,             // 16 bit
};
std::string_view to_string(SparseKernel kernel);

struct SparseKernels {
  SparseKernel prefill = SparseKernel::kFlashMlaSparse;
  SparseKernel decode = SparseKernel::kFa3;
};

struct SparseOptions {
  SparseKernels kernels;
  std::uint32_t top_k = 0;    // tokens that are attended to
  bool list_lengths = false;  // FlashMLA's sparse kernel is told how many of a list's places hold a token
};

// What the user named, or else SGLang's default for the device and the KV cache. Throws UserError naming
// `prefill_flag`, `decode_flag` or --kv-cache-dtype for what cannot be carried out.
struct SparseKernelRequest {
  std::optional<std::string> prefill, decode;
  std::string prefill_flag = "--nsa-prefill-backend", decode_flag = "--nsa-decode-backend";
  GpuGeneration generation = GpuGeneration::kHopper;
  NumberFormat kv_format = NumberFormat::kBf16;
  std::uint32_t num_q_heads = 0;  // of a rank
  bool glm = false;               // a model of GLM
  bool mixed_chunk = false;
};
SparseKernels choose_sparse_kernels(const SparseKernelRequest& request);

// Kernels whose loop walks all top_k places of a list, also those that hold no token: FlashMLA's. (A prefill
// of 2,048 tokens takes as long after 4 cached ones as after 2,048, dsa_context_module_perf.)
bool walks_whole_list(SparseKernel kernel);

// Kernels that read fp8 latents without scales.
bool reads_raw_latents(SparseKernel kernel);

// Bytes of one stored token: `latent` elements and `rope` elements after them. In fp8 the latent has an fp32
// scale for every 128 elements and the rope part stays in 16 bit, but for kernels that read all of it raw.
std::uint32_t sparse_token_bytes(const SparseKernels& kernels, NumberFormat kv_format, std::uint32_t latent,
                                 std::uint32_t rope);

// Bytes of one token's index key: fp8, with an fp32 scale for every 128 elements. (SGLang 0.5.23,
// mem_cache/index_key_cache.py)
constexpr std::uint32_t index_key_bytes(std::uint32_t head_dim) { return head_dim + head_dim / 128 * 4; }
// The same where blocks of tokens are chosen: as the model, but for fp8_e4m3 caches, which have them in fp8
// on Hopper, and on Blackwell where trtllm_mha reads them. (get_minimax_sparse_index_dtype of
// mem_cache/memory_pool.py)
constexpr std::uint32_t block_index_key_bytes(std::uint32_t head_dim, NumberFormat kv_format) {
  return kv_format == NumberFormat::kFp8E4M3 ? head_dim : 2 * head_dim;
}

// The kernel of one extend: --nsa-prefill-backend flashmla_auto chooses by the tokens of the batch.
SparseKernel extend_kernel(SparseKernel prefill, GpuGeneration generation, bool fp8_kv,
                           std::uint64_t total_kv_tokens, std::uint64_t total_q_tokens);

}  // namespace tpsim::attention
