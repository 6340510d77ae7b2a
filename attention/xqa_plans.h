// How TensorRT-LLM's kernels for GPUs other than data-center Blackwell cut a batch: XQA decodes, FMHA v2
// prefills. Nobody measured them here: prices are uncalibrated.
//
// Source: flashinfer 0.7.2, csrc/xqa/mha.cu and mha_sm90.cu (nbSubSeqPerSeq, ctaTile, gemm0CtaTileNbTokens),
// xqa.py (run_sm90_fp8_mha), jit/attention/fmha_v2/fmha_library.py (loop_step, kv_loop_step);
// SGLang 0.5.23 trtllm_mha_backend.py (is_xqa_impl, use_fmha_v2).
#pragma once

#include <cstdint>

#include "attention/gpu_generation.h"
#include "attention/layer_shape.h"
#include "attention/plan.h"

namespace tpsim::attention {

// Splits plan.items, which are whole so far: one thread block for each KV head, in steps of 256 tokens (64 of
// an fp8 cache on Hopper, which it multiplies in fp8), and as many parts of every request as fill the
// multiprocessors once, three quarters of three blocks each on Hopper's fp8 kernel. The last block of a
// request adds them up.
void plan_xqa_decode(const LayerShape& layer, GpuGeneration generation, std::uint32_t multiprocessors,
                     DecodePlan& plan);

// Two tiles of 64 query rows of a head in a thread block on Hopper, one on SM120, and KV steps by head size.
void set_fmha_v2_tiles(const LayerShape& layer, GpuGeneration generation, ExtendPlan& plan);

}  // namespace tpsim::attention
