#include "rank/numeric/indexer.h"

#include <cmath>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

constexpr float kNormEps = 1e-6F;  // of the keys' norm, whatever the model's is

}  // namespace

Indexer::Indexer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
    : model_(model), pool_(pool), times_(times), math_(pool.size()) {}

void Indexer::select(const Pass& pass, std::uint32_t layer, const IndexerWeights& weights,
                     kvcache::KvStore& keys, const float* x, const float* q_lora) {
  const IndexerConfig& indexer = model_.indexer;
  const std::uint32_t tokens = pass.tokens();
  const std::uint32_t heads = indexer.num_heads;
  const std::uint32_t dim = indexer.head_dim;
  const std::uint32_t place = model_.layers[layer].index_layer;
  queries_.resize(std::size_t{tokens} * heads * dim);
  keys_.resize(std::size_t{tokens} * dim);
  weights_.resize(std::size_t{tokens} * heads);
  {
    const Stopwatch watch(times_.gemm);
    weights.q.multiply(q_lora, tokens, model_.mla.q_lora_rank, queries_.data(), heads * dim, nullptr, pool_);
    weights.k.multiply(x, tokens, model_.hidden_size, keys_.data(), dim, nullptr, pool_);
    weights.heads.multiply(x, tokens, model_.hidden_size, weights_.data(), heads, nullptr, pool_);
  }
  {
    const Stopwatch watch(times_.other);
    const std::uint32_t rope = indexer.rope;
    // SGLang rounds them always; here only with an fp8 cache, so that a wider one is exact.
    const bool rounds = pass.plan(model_.layers[layer].attention).shape.fp8_kv();
    const float scale = 1 / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim));
    pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
      const auto turn = [&](float* head) {
        pass.rope(rope).rotate(pass.cos(rope, t), pass.sin(rope, t), head);
      };
      float* const key = keys_.data() + std::size_t{t} * dim;
      layer_norm(key, dim, weights.k_norm.data(), weights.k_norm_bias.data(), kNormEps, key);
      turn(key);
      if (rounds) attention::round_index_key(key, dim);
      keys.store(place, pass.slot(t), key, nullptr);
      for (std::uint32_t h = 0; h < heads; ++h) {
        float* const query = queries_.data() + (std::size_t{t} * heads + h) * dim;
        turn(query);
        if (rounds) attention::round_index_key(query, dim);
        weights_[std::size_t{t} * heads + h] *= scale;
      }
    });
  }
  const Stopwatch watch(times_.attention);
  attention::IndexCall call;
  call.keys = &keys;
  call.layer = place;
  call.heads = heads;
  call.head_dim = dim;
  call.top_k = indexer.top_k;
  call.page_tables = pass.batch().page_tables;
  call.q = queries_.data();
  call.weights = weights_.data();
  if (selected_.size() < tokens) selected_.resize(tokens);
  pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t thread) {
    math_[thread].select(call, pass.request(t), t, pass.position(t), selected_[t]);
  });
}

}  // namespace tpsim::rank
