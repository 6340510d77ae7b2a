// The attention of one layer on one rank: projections, rotation, the new keys and values into their pages,
// the backend's plan, and the rank's part of the output projection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/math/attention_math.h"
#include "attention/math/sparse_attention.h"
#include "kvcache/storage/kv_store.h"
#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// The lightning indexer of one layer on one rank: projections, rotation, the new index keys into their pages,
// and the tokens that each new token attends.
class Indexer {
 public:
  Indexer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times);

  // x: normed activations [tokens, hidden_size]; q_lora: normed [tokens, q_lora_rank]. `keys` is this rank's
  // store of index keys. Makes the selection of `layer`, which stays for the layers after it.
  void select(const Pass& pass, std::uint32_t layer, const IndexerWeights& weights, kvcache::KvStore& keys,
              const float* x, const float* q_lora);
  // MiniMax M3's: for each new token and KV head of the rank, `heads`, the blocks that it attends.
  void select_blocks(const Pass& pass, std::uint32_t layer, const IndexerWeights& weights,
                     kvcache::KvStore& keys, const float* x);
  // Positions in the token's sequence, ascending. Of chosen blocks: `token` is the token times the KV heads,
  // and the head.
  std::span<const std::uint32_t> selected(std::uint32_t token) const { return selected_[token]; }

 private:
  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::vector<attention::IndexMath> math_;              // per thread
  std::vector<attention::BlockSparseMath> block_math_;  // per thread
  std::vector<float> queries_, keys_, weights_;
  std::vector<std::vector<std::uint32_t>> selected_;
};

// MLA, un-absorbed: keys and values of every head from the latents that an extend sees.
//
// As SGLang's forward_mha.py has it: without a cached prefix, and for the new tokens of a chunked one,
// latents come from this pass's projections; what is cached comes from the cache, in its format; one-shot
// reads all of a batch that has a prefix back from the cache, the new tokens too.
class MlaExpansion {
 public:
  // `latents`: of the pass's tokens, normed, their keys rotated: [tokens, kv_lora_rank + qk_rope_head_dim].
  // The answer is valid until the next call. REQUIRES: pass.mla().expanded().
  attention::DenseKv expand(const Pass& pass, std::uint32_t layer, const MlaConfig& mla, std::uint32_t heads,
                            const MlaWeights& weights, const kvcache::KvStore& store, const float* latents,
                            ThreadPool& pool);

 private:
  std::vector<std::uint32_t> first_row_;
  std::vector<float> latents_;  // [rows, kv_lora_rank + qk_rope_head_dim]
  std::vector<float> heads_;    // [rows, heads, qk_nope_head_dim + v_head_dim]
};

// Queries and keys that are normed over all heads of a layer at once (MiniMax): the ranks project their
// heads, share the sums of the squares, and go on from there.
struct HeadsOfAllRanks {
  std::vector<float> projected;    // [tokens, queries, keys and values of this rank]
  const float* squares = nullptr;  // [tokens, 2]: of the queries and of the keys of all ranks
  static constexpr std::size_t kSums = 2;
};

class AttentionLayer {
 public:
  AttentionLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times);

  // With qk_norm_over_heads, before forward(): fills heads.projected and `squares`, this rank's [tokens, 2].
  void project(std::uint32_t tokens, const Shard& shard, const LayerWeights& weights, const float* x,
               HeadsOfAllRanks& heads, float* squares);

  // x: normed activations [tokens, hidden_size] (twice as wide in EAGLE3's heads); `out` receives this rank's
  // part of the output [tokens, hidden_size], without the output's bias. `index_keys`: the indexer's, or null
  // where the model has none. `heads`: what project() made of them; null without qk_norm_over_heads.
  void forward(const Pass& pass, std::uint32_t layer, const Shard& shard, const LayerWeights& weights,
               kvcache::KvStore& store, kvcache::KvStore* index_keys, HeadsOfAllRanks* heads, const float* x,
               float* out);

 private:
  void project_heads(const Pass& pass, std::uint32_t layer, const Shard& shard, const LayerWeights& weights,
                     kvcache::KvStore& store, HeadsOfAllRanks* heads, const float* x);
  void take_gates(float* row, std::uint32_t heads, std::uint32_t token);
  void weigh_heads(const PackedMatrix& gates, const float* x, std::uint32_t tokens, std::uint32_t dim);
  void project_latent(const Pass& pass, std::uint32_t layer, const Shard& shard, const MlaWeights& weights,
                      kvcache::KvStore& store, const float* x);
  // `dense`: keys and values, where they are not the store's.
  void attend(const Pass& pass, std::uint32_t layer, const LayerWeights& weights,
              const kvcache::KvStore& store, float* out, const attention::DenseKv* dense);

  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::vector<attention::AttentionMath> math_;          // per thread
  std::vector<attention::SparseMath> sparse_math_;      // per thread
  std::vector<attention::BlockSparseMath> block_math_;  // per thread
  Indexer indexer_;
  MlaExpansion expansion_;
  const std::vector<float> ones_;  // [head_dim]
  std::vector<float> projected_, queries_, latent_, attended_, values_;
  std::vector<float> gates_;  // [tokens, q heads, head_dim], or one of each head
};

}  // namespace tpsim::rank
