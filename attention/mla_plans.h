// How MLA decode kernels cut the latent cache: the parts of each request's KV tokens, and which thread blocks
// read them. All query heads of a rank share the latent, in blocks of `rows` heads.
#pragma once

#include <cstdint>
#include <span>

#include "attention/plan.h"

namespace tpsim::attention {

// FlashMLA (Hopper): as many thread blocks as multiprocessors, each a run of the batch's KV in blocks of 64
// tokens of equal cost, where each request costs five blocks more; a request is cut where a run ends. Source:
// get_mla_metadata of FlashMLA (csrc/smxx/get_mla_metadata.cu), as in SGLang's kernel library 0.4.2.
void plan_flashmla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                          std::uint32_t multiprocessors, DecodePlan& plan);

// FlashInfer's MLA kernels: persistent thread blocks (pairs of them for more than 64 rows of heads); parts of
// a length that shares the KV evenly, rounded up, go to the least busy block. Source: MLAPlan,
// include/flashinfer/attention/scheduler.cuh of flashinfer 0.7.2.
void plan_flashinfer_mla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                                std::uint32_t multiprocessors, DecodePlan& plan);
// The part length above for `total` KV tokens over all tiles and `clusters` persistent blocks.
std::uint32_t flashinfer_mla_part(std::uint64_t total, std::uint32_t clusters);

// TensorRT-LLM's generation kernels through FlashInfer: parts of at least two steps of 128 tokens, as many as
// fill the multiprocessors once, counted for the longest request and the same for all. Source:
// computeCtaAndClusterConfig, include/flashinfer/trtllm/fmha/fmhaKernels.cuh of flashinfer 0.7.2.
void plan_trtllm_mla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                            std::uint32_t multiprocessors, DecodePlan& plan);

// CUTLASS (Blackwell): a pair of multiprocessors for a request, heads padded to 128, and no parts, for SGLang
// asks for one (num_kv_splits=1 in cutlass_mla_backend.py).
void plan_cutlass_mla_decode(std::span<const std::uint32_t> seq_lens, DecodePlan& plan);

}  // namespace tpsim::attention
