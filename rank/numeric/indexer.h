// The lightning indexer of one layer on one rank: projections, rotation, the new index keys into their pages,
// and the tokens that each new token attends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/math/sparse_attention.h"
#include "kvcache/storage/kv_store.h"
#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

class Indexer {
 public:
  Indexer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times);

  // x: normed activations [tokens, hidden_size]; q_lora: normed [tokens, q_lora_rank]. `keys` is this rank's
  // store of index keys. Makes the selection of `layer`, which stays for the layers behind it.
  void select(const Pass& pass, std::uint32_t layer, const IndexerWeights& weights, kvcache::KvStore& keys,
              const float* x, const float* q_lora);
  // Positions in the token's sequence, ascending.
  std::span<const std::uint32_t> selected(std::uint32_t token) const { return selected_[token]; }

 private:
  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  std::vector<attention::IndexMath> math_;  // per thread
  std::vector<float> queries_, keys_, weights_;
  std::vector<std::vector<std::uint32_t>> selected_;
};

}  // namespace tpsim::rank
