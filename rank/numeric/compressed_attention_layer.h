// Attention over compressed tokens (DeepSeek V4) of one layer on one rank: projections, the new latents and
// what compressors keep of them into their pages, new entries, the indexer's choice of them, attention over
// the window and the chosen entries at once, and the rank's part of the output projection, by groups of
// heads.
//
// Everything lies at tokens' slots, so that prefixes are reused, chunks cut and requests retracted at any
// token: a token's latent; its keys and gates, from which its group is compressed, in fp32 (SGLang keeps
// those of the last tokens alone, in rings beside the pages of the window); and at the last token of a group
// its entry.
//
// Sources: Transformers 5.24, models/deepseek_v4; SGLang 0.5.23, layers/attention/dsv4.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/storage/kv_store.h"
#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// What a rank keeps; one head without a value in each.
struct CompressedStores {
  CompressedStores(const kvcache::KvStoreConfig& of_entries, const kvcache::KvStoreConfig& of_states)
      : entries(of_entries), states(of_states) {}
  kvcache::KvStore entries, states;
};

class CompressedAttentionLayer {
 public:
  CompressedAttentionLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times);

  // x: normed activations [tokens, hidden_size]; `out` receives this rank's part of the output. `store`:
  // latents; `index_keys`: the indexer's entries.
  void forward(const Pass& pass, std::uint32_t layer, const LayerWeights& weights, kvcache::KvStore& store,
               CompressedStores& compressed, kvcache::KvStore& index_keys, const float* x, float* out);

  // Elements of a token's keys and gates in a layer, the indexer's behind the entries'.
  static std::uint32_t state_size(const ModelConfig& model, const LayerConfig& layer);

 private:
  struct Scratch {  // of a thread
    std::vector<float> states, keys, entry, scores;
  };
  void project(const Pass& pass, std::uint32_t layer, const CompressedWeights& weights,
               kvcache::KvStore& store, const float* x);
  void keep_states(const Pass& pass, std::uint32_t layer, const CompressedWeights& weights,
                   kvcache::KvStore& states, const float* x);
  void compress(const Pass& pass, std::uint32_t layer, const CompressorWeights& weights, std::uint32_t first,
                std::uint32_t dim, const kvcache::KvStore& states, std::uint32_t place,
                kvcache::KvStore& entries);
  void choose(const Pass& pass, std::uint32_t layer, const CompressedWeights& weights,
              const kvcache::KvStore& index_keys, const float* x);
  void attend(const Pass& pass, std::uint32_t layer, const LayerWeights& weights,
              const kvcache::KvStore& store, const kvcache::KvStore& entries);
  std::uint32_t slot(const Pass& pass, std::uint32_t request, std::uint32_t position,
                     const kvcache::KvStore& store) const;
  void turn(const Pass& pass, std::uint32_t layer, std::uint32_t token, float* head, std::uint32_t dim) const;

  const ModelConfig& model_;
  ThreadPool& pool_;
  NumericTimes& times_;
  const std::vector<float> ones_;  // [head_dim]
  std::vector<Scratch> scratch_;
  std::vector<float> projected_, q_lora_, queries_, made_, index_made_, states_, attended_, grouped_;
  std::vector<float> index_queries_, head_weights_;
  std::vector<std::vector<std::uint32_t>> chosen_;  // of each token: entries, ascending
};

}  // namespace tpsim::rank
