#include "attention/diffusion/sla_plan.h"

#include <algorithm>
#include <cmath>

namespace tpsim::attention {

constexpr DiffusionParameter kSlaTopk = {.name = "sla_topk",
                                         .default_value = "0.1",
                                         .max = 1,
                                         .meaning =
                                             "share of the blocks of keys that are met exactly; SGLang reads "
                                             "it from the transformer's config.json"};

// Source: SGLang 0.5.23 backends/sparse_linear_attn.py, kernels/ops/diffusion (get_block_map).
double SlaPlan::kept_blocks(double keys) const {
  return std::max(1.0, std::floor(topk * std::ceil(keys / block_k)));
}

double SlaPlan::kept(const DiffusionCall& call) const {
  return std::min(call.keys, kept_blocks(call.keys) * block_k);
}

KernelCost SlaPlan::beside(const DiffusionCall& call, const DenseKernel& kernel) const {
  const double scores =
      4 * call.batch * call.heads * std::ceil(call.queries / block_q) * std::ceil(call.keys / block_k);
  const double q = token_bytes(call, call.queries), k = token_bytes(call, call.keys);
  // By head: q, k, v read and written. Means of q and of k, k less its mean. Feature maps of q and k. The
  // state reads k and v; the linear part reads q and writes its output in fp32 twice (quotient, projection);
  // the sum.
  KernelCost cost = kernel.traffic(4 * scores + (2 + 1 + 2 + 1 + 8 + 4) * q + (4 + 3 + 2 + 3) * k, 22);
  cost.flops += 2 * dense_flops(call) / call.keys * call.head_dim;
  return cost;
}

}  // namespace tpsim::attention
