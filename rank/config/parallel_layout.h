// How the GPUs of a deployment share a model, under the names of SGLang's flags.
//
// Of tp_size GPUs, each dp_size-th part serves its own requests (--enable-dp-attention): attention is cut
// over the tp_size / dp_size ranks of that part, and everything behind it over all, or as said below. Experts
// are spread over ep_size groups of ranks, and within a group each expert is cut by its width. (SGLang 0.5
// distributed/parallel_state.py initialize_model_parallel, layers/dp_attention.py.)
#pragma once

#include <cstdint>

namespace tpsim::rank {

// SGLang's --deepep-mode: kernels for throughput, for low latency, or the ones for prefill and the others for
// decode.
enum class DeepEpMode : std::uint8_t { kAuto, kNormal, kLowLatency };

// SGLang's --moe-a2a-backend.
enum class MoeA2aBackend : std::uint8_t {
  kNone,   // every rank of the group sees all tokens, computes its experts, and the sums are reduced
  kDeepEp  // tokens travel to the ranks of their experts and back
};

// One rank's part of something that is cut in `size`.
struct Split {
  std::uint32_t size = 1;
  std::uint32_t rank = 0;
};

struct ParallelLayout {
  std::uint32_t tp_size = 1;
  std::uint32_t ep_size = 1;   // divides tp_size
  std::uint32_t dp_size = 1;   // of attention; divides tp_size
  bool moe_dense_tp1 = false;  // --moe-dense-tp-size 1: dense MLPs are whole on every rank
  bool dp_lm_head = false;     // --enable-dp-lm-head: each part has a head of its own
  MoeA2aBackend moe_a2a = MoeA2aBackend::kNone;
  DeepEpMode deepep_mode = DeepEpMode::kAuto;

  std::uint32_t attn_tp_size() const { return tp_size / dp_size; }
  std::uint32_t moe_tp_size() const { return tp_size / ep_size; }
  bool a2a() const { return moe_a2a != MoeA2aBackend::kNone; }
  // Whether some layer needs the tokens of all data-parallel ranks (require_mlp_tp_gather).
  bool gathers_mlp() const { return dp_size > 1 && !(moe_dense_tp1 && dp_lm_head && a2a()); }

  std::uint32_t dp_rank(std::uint32_t rank) const { return rank / attn_tp_size(); }
  Split attention(std::uint32_t rank) const { return {attn_tp_size(), rank % attn_tp_size()}; }
  Split dense_mlp(std::uint32_t rank) const { return moe_dense_tp1 ? Split{} : Split{tp_size, rank}; }
  Split shared_experts(std::uint32_t rank) const { return a2a() ? Split{} : Split{tp_size, rank}; }
  Split experts(std::uint32_t rank) const { return {ep_size, rank / moe_tp_size()}; }
  Split expert_width(std::uint32_t rank) const { return {moe_tp_size(), rank % moe_tp_size()}; }
};

}  // namespace tpsim::rank
