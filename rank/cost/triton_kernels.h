// mxfp4 experts of 16-bit rows on Hopper: OpenAI's triton_kernels, which SGLang runs for gpt-oss there
// (--moe-runner-backend triton_kernel, chosen by itself where experts are not spread over ranks;
// gpt_oss.py, 0.5.12 and 0.5.23).
//
// Around two grouped products stand a dozen small kernels that choose experts and sort rows, and one that
// adds up a token's rows. A product's tile is one expert's block of rows by 256 outputs, over the whole of k
// (make_default_opt_flags_nvidia of matmul_ogs_details/opt_flags.py with SGLang's split_k = 1 and 8 warps).
#pragma once

#include "attention/backend.h"
#include "proto/coefficients.h"
#include "rank/config/weight_format.h"
#include "rank/cost/routed_experts.h"

namespace tpsim::rank {

using attention::KernelCost;

struct TritonExpertsPlan {
  double block_rows = 0;  // of a tile: 16, 32, 64 or 128
  double blocks = 0;      // that the rows of all experts fill
  double up_tiles = 0;
  double down_tiles = 0;
  double width = 0;     // of one expert on this rank, as SGLang pads it: a multiple of 64
  double resident = 0;  // tiles that share a multiprocessor
};

// `work`: work_of(experts).
TritonExpertsPlan plan_triton_experts(const RoutedExperts& experts, const ExpertWork& work);

// What a GPU can do, in datasheet units.
struct TritonExpertsDevice {
  double flops = 0;  // a second, 16 bit
  double bandwidth = 0;
  double multiprocessors = 0;
};

// Both products by the plan: whole waves of tiles, a tile's k elements at `k_seconds` each besides its
// arithmetic; at least what the weights of the experts hit take to be read once, and what fewer rows take in
// smaller blocks. `fixed_seconds`: the kernels around; `rows`: bytes of the last one, as counted.
KernelCost triton_experts_cost(const RoutedExperts& experts, const ExpertWork& work,
                               const WeightFormat& weight, const OperatorCoefficients& coefficients,
                               const TritonExpertsDevice& device);

}  // namespace tpsim::rank
