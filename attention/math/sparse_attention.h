// Sparse attention really computed: the indexer scores the tokens of a sequence by their index keys, the best
// top_k are selected, and absorbed MLA attends those alone, through the pages of both caches.
//
// The score of a token t for a query token s is sum over the indexer's heads of w[s, h] * relu(q[s, h] .
// k[t]), as DeepSeek-V3.2 defines it (Transformers: models/deepseek_v32; SGLang: deep_gemm's fp8_mqa_logits).
// All arithmetic is fp32. The Hadamard rotation that some of SGLang's kernels put before their fp8 rounding
// turns queries and keys alike and leaves the products as they are; there is none here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/math/attention_math.h"
#include "attention/math/softmax_part.h"
#include "attention/plan.h"
#include "kvcache/storage/kv_store.h"

namespace tpsim::attention {

// What an fp8 cache keeps of a token, in place. FlashMLA's layout: E4M3 with an fp32 scale for every 128 of
// the `latent` elements, and bf16 for the `rope` elements after them (SGLang's dsa_quant_k_cache.py).
void round_scaled_latent(float* token, std::uint32_t latent, std::uint32_t rope);
// Index keys, and the queries that meet them: E4M3 with a power of two for every 128 elements as their scale
// (act_quant with scale_fmt "ue8m0").
void round_index_key(float* key, std::uint32_t dim);

struct IndexCall {
  const kvcache::KvStore* keys = nullptr;  // index keys: one head of head_dim elements
  std::uint32_t layer = 0;                 // of that store
  std::uint32_t heads = 0;                 // of the indexer, the same on every rank
  std::uint32_t head_dim = 0;
  std::uint32_t top_k = 0;
  std::span<const std::span<const std::uint32_t>> page_tables;  // as AttentionCall's
  const float* q = nullptr;                                     // [rows, heads, head_dim], rotated
  const float* weights = nullptr;                               // [rows, heads], all scales included
};

// Keeps its buffers from call to call.
class IndexMath {
 public:
  // The positions that query token `row`, which stands at `position` of `request`, attends: ascending. Of
  // equal scores the earlier position is taken; a score that is not a number comes last.
  void select(const IndexCall& call, std::uint32_t request, std::uint32_t row, std::uint32_t position,
              std::vector<std::uint32_t>& selected);

 private:
  std::vector<float> keys_;    // [tokens of one step, head_dim]
  std::vector<float> scores_;  // [position + 1]
};

// MiniMax M3: the blocks of tokens of a sequence that hold its best scores, without weights and once for
// every KV head of the rank, and attention over them (Transformers: models/minimax_m3_vl; SGLang 0.5.23:
// layers/attention/minimax_sparse_ops).
struct BlockCall {
  std::uint32_t block = 0;         // tokens
  std::uint32_t local_blocks = 0;  // the last ones, which are always chosen
};

// Keeps its buffers from call to call.
class BlockSparseMath {
 public:
  // The positions that query token `row` (at `position` of `request`) attends with head `head` of the
  // indexer: ascending. Of equal scores the earlier block is taken. REQUIRES: index.top_k is of whole blocks.
  void select(const IndexCall& index, const BlockCall& blocks, std::uint32_t request, std::uint32_t row,
              std::uint32_t position, std::uint32_t head, std::vector<std::uint32_t>& selected);
  // Attention of the query heads of one KV head over these positions, in steps of so many tokens.
  void attend(const AttentionCall& call, std::uint32_t step, std::uint32_t request, std::uint32_t row,
              std::uint32_t kv_head, std::span<const std::uint32_t> selected);

 private:
  std::vector<float> queries_;        // [heads of the group, head_dim], scaled
  std::vector<float> keys_, values_;  // of one step
  std::vector<float> scores_;
  SoftmaxPart part_;
};

// Keeps its buffers from call to call.
class SparseMath {
 public:
  // Attention of query token `row` of `request` over the tokens at the positions `selected`, in the steps and
  // parts of the plan. REQUIRES: call.store keeps one head with the value in the key.
  void attend(const SparsePlan& plan, const AttentionCall& call, std::uint32_t request, std::uint32_t row,
              std::span<const std::uint32_t> selected);

 private:
  void load(const AttentionCall& call, std::uint32_t request, std::span<const std::uint32_t> selected);
  void step(const AttentionCall& call, std::uint32_t count);

  std::vector<float> queries_;  // [heads, head_dim], scaled
  std::vector<float> keys_;     // [tokens, head_dim]
  std::vector<float> scores_;   // [heads, tokens]
  SoftmaxPart part_, total_;    // a row for each query head
};

}  // namespace tpsim::attention
