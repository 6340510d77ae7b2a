#include "rank/numeric/compressed_attention_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {

CompressedAttentionLayer::CompressedAttentionLayer(const ModelConfig& model, ThreadPool& pool,
                                                   NumericTimes& times)
    : model_(model), pool_(pool), times_(times), ones_(model.head_dim, 1.0F), scratch_(pool.size()) {}

std::uint32_t CompressedAttentionLayer::state_size(const ModelConfig& model, const LayerConfig& layer) {
  if (layer.compress_ratio == 0) return 0;
  return layer.indexer ? 4 * (model.head_dim + model.indexer.head_dim) : 2 * model.head_dim;
}

std::uint32_t CompressedAttentionLayer::slot(const Pass& pass, std::uint32_t request, std::uint32_t position,
                                             const kvcache::KvStore& store) const {
  const std::uint32_t page = store.config().page_size;
  return pass.batch().page_tables[request][position / page] * page + position % page;
}

// The last elements of a head of `dim`.
void CompressedAttentionLayer::turn(const Pass& pass, std::uint32_t layer, std::uint32_t token, float* head,
                                    std::uint32_t dim) const {
  const std::uint32_t rope = model_.layers[layer].rope;
  pass.rope(rope).rotate(pass.cos(rope, token), pass.sin(rope, token),
                         head + dim - model_.compressed.rope_head_dim);
}

// q_lora_, queries_ [tokens, heads, head_dim]; latents to their pages.
void CompressedAttentionLayer::project(const Pass& pass, std::uint32_t layer,
                                       const CompressedWeights& weights, kvcache::KvStore& store,
                                       const float* x) {
  const std::uint32_t tokens = pass.tokens();
  const std::uint32_t dim = model_.head_dim, lora = model_.compressed.q_lora_rank;
  const std::uint32_t heads = weights.q_b.n() / dim;
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  projected_.resize(std::size_t{tokens} * weights.qkv_a.n());
  q_lora_.resize(std::size_t{tokens} * lora);
  queries_.resize(std::size_t{tokens} * weights.q_b.n());
  {
    const Stopwatch watch(times_.gemm);
    weights.qkv_a.multiply(x, tokens, projected_.data(), pool_);
  }
  for (std::uint32_t t = 0; t < tokens; ++t)
    rms_norm(projected_.data() + std::size_t{t} * weights.qkv_a.n(), lora, weights.q_norm.data(), 0, eps,
             q_lora_.data() + std::size_t{t} * lora);
  {
    const Stopwatch watch(times_.gemm);
    weights.q_b.multiply(q_lora_.data(), tokens, queries_.data(), pool_);
  }
  const Stopwatch watch(times_.other);
  pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
    float* const latent = projected_.data() + std::size_t{t} * weights.qkv_a.n() + lora;
    rms_norm(latent, dim, weights.kv_norm.data(), 0, eps, latent);
    turn(pass, layer, t, latent, dim);
    store.store(model_.layers[layer].kv_layer, pass.slot(t), latent, nullptr);
    for (std::uint32_t h = 0; h < heads; ++h) {
      float* const query = queries_.data() + (std::size_t{t} * heads + h) * dim;
      rms_norm(query, dim, ones_.data(), 0, eps, query);
      turn(pass, layer, t, query, dim);
    }
  });
}

void CompressedAttentionLayer::keep_states(const Pass& pass, std::uint32_t layer,
                                           const CompressedWeights& weights, kvcache::KvStore& states,
                                           const float* x) {
  const std::uint32_t tokens = pass.tokens();
  const std::size_t made = weights.entries.kv_gate.n(), index_made = weights.index.kv_gate.n();
  made_.resize(tokens * made);
  index_made_.resize(tokens * index_made);
  {
    const Stopwatch watch(times_.gemm);
    weights.entries.kv_gate.multiply(x, tokens, made_.data(), pool_);
    if (index_made > 0) weights.index.kv_gate.multiply(x, tokens, index_made_.data(), pool_);
  }
  const Stopwatch watch(times_.other);
  states_.resize(made + index_made);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    std::copy_n(made_.data() + t * made, made, states_.data());
    std::copy_n(index_made_.data() + t * index_made, index_made, states_.data() + made);
    states.store(model_.layers[layer].kv_layer, pass.slot(t), states_.data(), nullptr);
  }
}

// Where a token of the pass ends a group, the group's entry: of each element the mean of its keys, weighed by
// the softmax of their gates. `first`: of the compressor's keys and gates in a token's states. Where groups
// overlap, the first half of keys and gates is for the group behind the token's own.
void CompressedAttentionLayer::compress(const Pass& pass, std::uint32_t layer,
                                        const CompressorWeights& weights, std::uint32_t first,
                                        std::uint32_t dim, const kvcache::KvStore& states,
                                        std::uint32_t place, kvcache::KvStore& entries) {
  const LayerConfig& config = model_.layers[layer];
  const std::uint32_t ratio = config.compress_ratio;
  const std::uint32_t made = weights.kv_gate.n() / 2;
  const std::uint32_t size = state_size(model_, config);
  const RotaryEmbedding& rope = pass.rope(config.rope);
  pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t thread) {
    const std::uint32_t end = pass.position(t) + 1;
    if (end % ratio != 0) return;
    Scratch& of = scratch_[thread];
    const std::uint32_t overlap = made > dim && end > ratio ? ratio : 0;
    const std::uint32_t count = overlap + ratio;
    of.states.resize(std::size_t{count} * size);
    for (std::uint32_t i = 0; i < count; ++i)
      states.load_keys(config.kv_layer, slot(pass, pass.request(t), end - count + i, states), 1, 0,
                       of.states.data() + std::size_t{i} * size);
    of.entry.assign(dim, 0.0F);
    of.scores.resize(count);
    for (std::uint32_t d = 0; d < dim; ++d) {
      const auto column = [&](std::uint32_t i) { return i < overlap ? d : made - dim + d; };
      for (std::uint32_t i = 0; i < count; ++i)
        of.scores[i] = of.states[std::size_t{i} * size + first + made + column(i)] +
                       weights.position[std::size_t{i % ratio} * made + column(i)];
      softmax(of.scores.data(), count);
      for (std::uint32_t i = 0; i < count; ++i)
        of.entry[d] += of.scores[i] * of.states[std::size_t{i} * size + first + column(i)];
    }
    rms_norm(of.entry.data(), dim, weights.norm.data(), 0, static_cast<float>(model_.rms_norm_eps),
             of.entry.data());
    of.keys.resize(rope.dim());
    rope.angles(end - ratio, end, of.keys.data(), of.keys.data() + rope.dim() / 2);
    rope.rotate(of.keys.data(), of.keys.data() + rope.dim() / 2, of.entry.data() + dim - rope.dim());
    entries.store(place, pass.slot(t), of.entry.data(), nullptr);
  });
}

// Fills chosen_: all whole groups up to each token, or those that its indexer finds best, of equal ones the
// first.
void CompressedAttentionLayer::choose(const Pass& pass, std::uint32_t layer, const CompressedWeights& weights,
                                      const kvcache::KvStore& index_keys, const float* x) {
  const LayerConfig& config = model_.layers[layer];
  const IndexerConfig& indexer = model_.indexer;
  const std::uint32_t tokens = pass.tokens();
  const std::uint32_t heads = indexer.num_heads, dim = indexer.head_dim;
  if (chosen_.size() < tokens) chosen_.resize(tokens);
  if (config.indexer) {
    const Stopwatch watch(times_.gemm);
    index_queries_.resize(std::size_t{tokens} * heads * dim);
    head_weights_.resize(std::size_t{tokens} * heads);
    weights.index_q.multiply(q_lora_.data(), tokens, index_queries_.data(), pool_);
    weights.index_heads.multiply(x, tokens, head_weights_.data(), pool_);
  }
  const Stopwatch watch(times_.attention);
  const float scale = 1 / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim));
  pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t thread) {
    std::vector<std::uint32_t>& chosen = chosen_[t];
    const std::uint32_t ratio = config.compress_ratio;
    chosen.resize(ratio == 0 ? 0 : (pass.position(t) + 1) / ratio);
    std::iota(chosen.begin(), chosen.end(), 0U);
    if (!config.indexer || chosen.size() <= indexer.top_k) return;
    Scratch& of = scratch_[thread];
    float* const queries = index_queries_.data() + std::size_t{t} * heads * dim;
    for (std::uint32_t h = 0; h < heads; ++h) turn(pass, layer, t, queries + std::size_t{h} * dim, dim);
    of.keys.resize(dim);
    of.scores.assign(chosen.size(), 0.0F);
    for (std::uint32_t e = 0; e < chosen.size(); ++e) {
      index_keys.load_keys(config.index_layer, slot(pass, pass.request(t), (e + 1) * ratio - 1, index_keys),
                           1, 0, of.keys.data());
      for (std::uint32_t h = 0; h < heads; ++h)
        of.scores[e] += head_weights_[std::size_t{t} * heads + h] * scale *
                        std::max(0.0F, dot(queries + std::size_t{h} * dim, of.keys.data(), dim));
    }
    const auto better = [&](std::uint32_t a, std::uint32_t b) {
      return of.scores[a] != of.scores[b] ? of.scores[a] > of.scores[b] : a < b;
    };
    std::partial_sort(chosen.begin(), chosen.begin() + indexer.top_k, chosen.end(), better);
    chosen.resize(indexer.top_k);
    std::sort(chosen.begin(), chosen.end());
  });
}

// attended_ [tokens, heads, head_dim], turned back by the query's position: a latent is its own value.
void CompressedAttentionLayer::attend(const Pass& pass, std::uint32_t layer, const LayerWeights& weights,
                                      const kvcache::KvStore& store, const kvcache::KvStore& entries) {
  const LayerConfig& config = model_.layers[layer];
  const std::uint32_t dim = model_.head_dim;
  const std::uint32_t heads = weights.compressed.q_b.n() / dim;
  const std::uint32_t rope = config.rope, turned = model_.compressed.rope_head_dim;
  const auto scale = static_cast<float>(model_.attention_scale);
  attended_.resize(queries_.size());
  const Stopwatch watch(times_.attention);
  pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t thread) {
    Scratch& of = scratch_[thread];
    const std::uint32_t request = pass.request(t), end = pass.position(t) + 1;
    const std::uint32_t window = std::min(end, config.sliding_window);
    const std::uint32_t count = window + static_cast<std::uint32_t>(chosen_[t].size());
    of.keys.resize(std::size_t{count} * dim);
    for (std::uint32_t i = 0; i < window; ++i)
      store.load_keys(config.kv_layer, slot(pass, request, end - window + i, store), 1, 0,
                      of.keys.data() + std::size_t{i} * dim);
    for (std::uint32_t i = window; i < count; ++i) {
      const std::uint32_t last = (chosen_[t][i - window] + 1) * config.compress_ratio - 1;
      entries.load_keys(config.kv_layer, slot(pass, request, last, entries), 1, 0,
                        of.keys.data() + std::size_t{i} * dim);
    }
    of.scores.resize(count + 1);
    of.entry.resize(turned / 2);  // sines of the way back
    for (std::uint32_t i = 0; i < turned / 2; ++i) of.entry[i] = -pass.sin(rope, t)[i];
    for (std::uint32_t h = 0; h < heads; ++h) {
      const std::size_t head = (std::size_t{t} * heads + h) * dim;
      for (std::uint32_t i = 0; i < count; ++i)
        of.scores[i] = scale * dot(queries_.data() + head, of.keys.data() + std::size_t{i} * dim, dim);
      of.scores[count] = weights.sinks[h];
      softmax(of.scores.data(), count + 1);
      float* const result = attended_.data() + head;
      std::fill_n(result, dim, 0.0F);
      for (std::uint32_t i = 0; i < count; ++i)
        for (std::uint32_t c = 0; c < dim; ++c) result[c] += of.scores[i] * of.keys[std::size_t{i} * dim + c];
      pass.rope(rope).rotate(pass.cos(rope, t), of.entry.data(), result + dim - turned);
    }
  });
}

void CompressedAttentionLayer::forward(const Pass& pass, std::uint32_t layer, const LayerWeights& weights,
                                       kvcache::KvStore& store, CompressedStores& compressed,
                                       kvcache::KvStore& index_keys, const float* x, float* out) {
  const LayerConfig& config = model_.layers[layer];
  const CompressedWeights& mine = weights.compressed;
  const std::uint32_t tokens = pass.tokens();
  project(pass, layer, mine, store, x);
  if (config.compress_ratio > 0) {
    keep_states(pass, layer, mine, compressed.states, x);
    const Stopwatch watch(times_.attention);
    compress(pass, layer, mine.entries, 0, model_.head_dim, compressed.states, config.kv_layer,
             compressed.entries);
    if (config.indexer)
      compress(pass, layer, mine.index, mine.entries.kv_gate.n(), model_.indexer.head_dim, compressed.states,
               config.index_layer, index_keys);
  }
  choose(pass, layer, mine, index_keys, x);
  attend(pass, layer, weights, store, compressed.entries);
  const Stopwatch watch(times_.gemm);
  const std::uint32_t rank = model_.compressed.o_lora_rank;
  const auto groups = static_cast<std::uint32_t>(mine.o_a.size());
  grouped_.resize(std::size_t{tokens} * groups * rank);
  for (std::uint32_t g = 0; g < groups; ++g) {
    const std::uint32_t width = mine.o_a[g].k();
    mine.o_a[g].multiply(attended_.data() + std::size_t{g} * width, tokens, groups * width,
                         grouped_.data() + std::size_t{g} * rank, groups * rank, nullptr, pool_);
  }
  mine.o_b.multiply(grouped_.data(), tokens, out, pool_);
}

}  // namespace tpsim::rank
