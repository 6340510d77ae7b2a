// Attention really computed: the plans of the backends, carried out over a paged KV store.
//
// A plan decides what is added up in which order: tiles of query tokens, steps and parts (splits) of the KV
// range, and their merge by log-sum-exp. All arithmetic is fp32. Softmax is over scale * q.k, soft-capped
// (cap * tanh(x / cap)) where logit_cap > 0, plus the sink of the head where there are sinks: a logit with no
// value that takes its share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "attention/plan.h"
#include "kvcache/storage/kv_store.h"

namespace tpsim::attention {

// Which kernel carries out the plans of a backend.
enum class KernelKind : std::uint8_t {
  kPaged,     // online softmax over pages; splits are merged
  kGathered,  // K and V of a request are gathered into dense arrays, then plain softmax (torch_native)
};

struct AttentionCall {
  const kvcache::KvStore* store = nullptr;
  std::uint32_t layer = 0;
  LayerShape shape;              // of this rank
  float scale = 1;               // of q.k
  float logit_cap = 0;           // 0 = none
  const float* sinks = nullptr;  // [num_q_heads] or null
  // Page numbers of each request of the plan, by its position in the batch (the `request` of plan items).
  std::span<const std::span<const std::uint32_t>> page_tables;
  // Row of q (and out) where each request's query tokens begin.
  std::span<const std::uint32_t> first_row;
  const float* q = nullptr;  // [rows, num_q_heads, head_dim]
  float* out = nullptr;      // [rows, num_q_heads, v_head_dim]
  // Custom mask of extend items, or empty: entry i is null (causal) or [q_len, prefix + q_len] of 0 and 1,
  // which replaces the causal mask (and the window) of request i.
  std::span<const std::uint8_t* const> masks;
};

// Keeps its buffers from call to call; one per thread or rank.
class AttentionMath {
 public:
  // Every item of the plan; heads of `call.shape`.
  void decode(KernelKind kernel, const DecodePlan& plan, const AttentionCall& call);
  void extend(KernelKind kernel, const ExtendPlan& plan, const AttentionCall& call);

 private:
  std::vector<float> buffer_;
};

}  // namespace tpsim::attention
