// Attention really computed: the plans of the backends, carried out over a paged KV store.
//
// A plan decides what is added up in which order: tiles of query tokens, steps and parts (splits) of the KV
// range, and their merge by log-sum-exp. All arithmetic is fp32. Softmax is over scale * q.k, soft-capped
// (cap * tanh(x / cap)) where logit_cap > 0, plus the sink of the head where there are sinks: a logit with no
// value that takes its share.
//
// A plan falls into tasks that do not depend on each other: one KV head of one request's decode, or of one
// tile of query tokens. Tasks may run on different threads, each with an AttentionMath of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "attention/math/softmax_part.h"
#include "attention/plan.h"
#include "kvcache/storage/kv_store.h"

namespace tpsim::attention {

// Keys and values that lie before the kernel instead of in the store: MLA's, expanded for every head.
struct DenseKv {
  std::span<const std::uint32_t> first_row;  // of each request's first KV token
  // [rows, num_kv_heads, own + v_head_dim]: of every head the part of the key that is its own, then its
  // value.
  const float* heads = nullptr;
  std::uint32_t own = 0;
  // The rest of the key, which all heads share: head_dim - own elements, rows `stride` apart.
  const float* shared = nullptr;
  std::uint32_t stride = 0;
};

struct AttentionCall {
  KernelKind kernel = KernelKind::kPaged;
  const kvcache::KvStore* store = nullptr;
  const DenseKv* dense = nullptr;  // where not null, instead of the store
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
  // Dual chunk attention: the same queries, rotated as the chunk before theirs meets them, and as all before
  // that does; `q` then meets their own chunk.
  const float* q_succ = nullptr;
  const float* q_inter = nullptr;
  float* out = nullptr;  // [rows, num_q_heads, v_head_dim]
  // Custom mask of extend items, or empty: entry i is null (causal) or [q_len, prefix + q_len] of 0 and 1,
  // which replaces the causal mask (and the window) of request i.
  std::span<const std::uint8_t* const> masks;
};

// Query tokens [row, row + rows) of one item of an extend plan.
struct ExtendTile {
  std::uint32_t item = 0;
  std::uint32_t row = 0;
  std::uint32_t rows = 0;
};
// Appends the tiles of `plan`; the tasks are these times the KV heads.
void extend_tiles(const ExtendPlan& plan, std::vector<ExtendTile>& tiles);

// Keeps its buffers from call to call.
class AttentionMath {
 public:
  // One item of a decode plan, one KV head with its group of query heads.
  void decode(const DecodePlan& plan, const AttentionCall& call, std::uint32_t item, std::uint32_t kv_head);
  // One tile of an extend plan, one KV head.
  void extend(const ExtendPlan& plan, const AttentionCall& call, const ExtendTile& tile,
              std::uint32_t kv_head);

  // All tasks, one after the other.
  void decode(const DecodePlan& plan, const AttentionCall& call);
  void extend(const ExtendPlan& plan, const AttentionCall& call);

 private:
  // Query rows of one request that share a KV head: tokens x the heads of the group.
  struct Rows {
    std::uint32_t request = 0;
    std::uint32_t tokens = 0;
    std::uint32_t group = 0;          // query heads
    std::uint32_t position = 0;       // of the first token in its sequence
    std::uint32_t first_token = 0;    // of the tile, in the request's new tokens
    std::uint32_t first_visible = 0;  // KV tokens before it are behind every row's window
    const std::uint8_t* mask = nullptr;
    std::uint32_t mask_width = 0;
  };
  // queries_ from `q` [rows, num_q_heads, head_dim].
  void read_queries(const AttentionCall& call, const float* q, const Rows& rows, std::uint32_t kv_head);
  void load(const AttentionCall& call, std::uint32_t request, std::uint32_t kv_head, std::uint32_t begin,
            std::uint32_t end);
  void load_dense(const AttentionCall& call, std::uint32_t request, std::uint32_t kv_head,
                  std::uint32_t begin, std::uint32_t end);
  void turn_keys(std::uint32_t dim, std::uint32_t count);
  void score(const AttentionCall& call, const Rows& rows, std::uint32_t begin, std::uint32_t count);
  void attend(const AttentionCall& call, const Rows& rows, std::uint32_t kv_head, std::uint32_t begin,
              std::uint32_t end, std::uint32_t step);
  // KV tokens of one step of a decode kernel's loop.
  static constexpr std::uint32_t kDecodeStep = 128;

  void finish(const AttentionCall& call, const Rows& rows, std::uint32_t kv_head);
  void attend_in_parts(const AttentionCall& call, const Rows& rows, std::uint32_t kv_head,
                       std::uint32_t begin, std::uint32_t end, std::uint32_t step, std::uint32_t part_tokens);

  // Dual chunk attention (dual_chunk.cc).
  void decode_chunks(const DecodePlan& plan, const AttentionCall& call, const Rows& rows, std::uint32_t item,
                     std::uint32_t kv_head);
  void extend_chunks(const ExtendPlan& plan, const AttentionCall& call, const Rows& rows,
                     std::uint32_t kv_head);

  std::vector<float> queries_;  // [rows, head_dim], scaled
  std::vector<float> keys_;     // [tokens, head_dim]
  std::vector<float> turned_;   // [head_dim, tokens]
  std::vector<float> values_;   // [tokens, v_head_dim]
  std::vector<float> scores_;   // [rows, tokens]
  SoftmaxPart part_, total_;
  std::vector<ExtendTile> tiles_;
};

}  // namespace tpsim::attention
