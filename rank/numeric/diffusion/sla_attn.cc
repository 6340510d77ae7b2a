// Sparse linear attention, its exact part: means of 128 queries and of 64 keys in a row score each other, and
// a block of queries meets the share of the blocks of keys that score highest (sla_plan.h). What keys have in
// common, which SGLang takes off before, changes no order. The linear part goes through a projection that
// Diffusers' checkpoints do not have and SGLang begins as zeros, so it is left out.
//
// Sources: arXiv 2509.24006; SGLang 0.5.23 backends/sparse_linear_attn.py, kernels/ops/diffusion
// (get_block_map).
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/diffusion/sla_plan.h"
#include "rank/numeric/diffusion/head_attention.h"
#include "rank/numeric/diffusion/key_blocks.h"

namespace tpsim::rank {
namespace {

std::vector<std::uint8_t> select_sla(const HeadCall& call, const attention::DiffusionParameters& parameters) {
  const attention::SlaPlan plan{.topk = attention::real_parameter(parameters, "sla_topk")};
  const std::vector<std::uint32_t> query_blocks = blocks_in_a_row(call.q.count, plan.block_q);
  const std::vector<std::uint32_t> key_blocks = blocks_in_a_row(call.k.count, plan.block_k);
  const std::vector<float> q = block_means(call.q, call.dim, query_blocks),
                           k = block_means(call.k, call.dim, key_blocks);
  const std::size_t rows = q.size() / call.dim, width = k.size() / call.dim;
  const auto kept = static_cast<std::size_t>(plan.kept_blocks(call.k.count));
  std::vector<std::uint8_t> meets(rows * width);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::vector<std::uint32_t> order = by_value(dots(q.data() + row * call.dim, k, call.dim));
    for (std::size_t i = 0; i < kept; ++i) meets[row * width + order[i]] = 1;
  }
  return pairs_of_blocks(meets, query_blocks, key_blocks);
}

}  // namespace

extern const HeadBackend kSlaHead;
const HeadBackend kSlaHead = {.name = "sla_attn", .select = select_sla};

}  // namespace tpsim::rank
