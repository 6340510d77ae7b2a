#include "rank/numeric/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {
namespace {

constexpr float kNormEps = 1e-6F;  // of the keys' norm, whatever the model's is

std::uint32_t widest_head(const ModelConfig& model) {
  std::uint32_t widest = model.head_dim;
  for (const AttentionKind& kind : model.attention) widest = std::max(widest, kind.heads.head_dim);
  return widest;
}

// x [weight.size()] of a row of `size` elements whose squares add up to `squares`.
void norm_part(float* x, const std::vector<float>& weight, float squares, std::uint32_t size, float eps) {
  const float factor = 1 / std::sqrt(squares / static_cast<float>(size) + eps);
  for (std::size_t i = 0; i < weight.size(); ++i) x[i] *= factor * weight[i];
}

}  // namespace

attention::DenseKv MlaExpansion::expand(const Pass& pass, std::uint32_t layer, const MlaConfig& mla,
                                        std::uint32_t heads, const MlaWeights& weights,
                                        const kvcache::KvStore& store, const float* latents,
                                        ThreadPool& pool) {
  const TokenBatch& batch = pass.batch();
  const std::uint32_t width = mla.kv_lora_rank + mla.qk_rope_head_dim;
  const std::uint32_t page_size = store.config().page_size;
  const bool any_prefix = pass.mla().method != attention::MlaForwardMethod::kMha;
  first_row_.clear();
  std::uint32_t rows = 0;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    first_row_.push_back(rows);
    rows += batch.prefix_lens[i] + batch.q_lens[i];
  }
  latents_.resize(std::size_t{rows} * width);
  pool.parallel_for(static_cast<std::uint32_t>(batch.q_lens.size()), [&](std::uint32_t i, std::uint32_t) {
    const std::uint32_t prefix = batch.prefix_lens[i];
    const std::uint32_t end = prefix + batch.q_lens[i];
    float* const to = latents_.data() + std::size_t{first_row_[i]} * width;
    const bool whole = any_prefix && pass.mla().method == attention::MlaForwardMethod::kMhaOneShot;
    const std::uint32_t cached = whole ? end : prefix;
    for (std::uint32_t at = 0; at < cached;) {
      const std::uint32_t count = std::min(cached - at, page_size - at % page_size);
      const std::uint32_t slot = batch.page_tables[i][at / page_size] * page_size + at % page_size;
      store.load_keys(layer, slot, count, 0, to + std::size_t{at} * width);
      at += count;
    }
    const float* const fresh = latents + std::size_t{pass.first_rows()[i]} * width;
    std::copy(fresh + std::size_t{cached - prefix} * width, fresh + std::size_t{end - prefix} * width,
              to + std::size_t{cached} * width);
  });
  const std::uint32_t own = mla.qk_nope_head_dim + mla.v_head_dim;
  heads_.resize(std::size_t{rows} * heads * own);
  weights.expand.multiply(latents_.data(), rows, width, heads_.data(), heads * own, nullptr, pool);
  return {.first_row = first_row_,
          .heads = heads_.data(),
          .own = mla.qk_nope_head_dim,
          .shared = latents_.data() + mla.kv_lora_rank,
          .stride = width};
}

AttentionLayer::AttentionLayer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
    : model_(model),
      pool_(pool),
      times_(times),
      math_(pool.size()),
      sparse_math_(pool.size()),
      block_math_(pool.size()),
      indexer_(model, pool, times),
      ones_(widest_head(model), 1.0F) {}

void AttentionLayer::project(std::uint32_t tokens, const Shard& shard, const LayerWeights& weights,
                             const float* x, HeadsOfAllRanks& heads, float* squares) {
  const Stopwatch watch(times_.gemm);
  const std::size_t width = weights.qkv.n();
  const std::uint32_t q_size = shard.q_heads.count() * model_.head_dim;
  const std::uint32_t k_size = shard.kv_heads.count() * model_.head_dim;
  heads.projected.resize(tokens * width);
  weights.qkv.multiply(x, tokens, heads.projected.data(), pool_, weights.qkv_bias);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const float* const row = heads.projected.data() + t * width;
    *squares++ = dot(row, row, q_size);
    *squares++ = dot(row + q_size, row + q_size, k_size);
  }
}

// queries_ [tokens, q heads, head_dim], three times with dual chunk attention: as they meet their own chunk,
// the one before it, and all before that. Keys and values go to their pages.
void AttentionLayer::project_heads(const Pass& pass, std::uint32_t layer, const Shard& shard,
                                   const LayerWeights& weights, kvcache::KvStore& store,
                                   HeadsOfAllRanks* heads, const float* x) {
  const attention::LayerShape& shape = pass.plan(model_.layers[layer].attention).shape;
  const std::uint32_t dim = shape.head_dim;
  const std::uint32_t q_size = shape.num_q_heads * dim;
  const std::uint32_t kv_size = shape.num_kv_heads * dim;
  const std::uint32_t v_size = shape.num_kv_heads * shape.v_head_dim;
  // With gated outputs each head's query is followed by its gate.
  const std::uint32_t q_width = model_.attn_output_gate ? 2 * q_size : q_size;
  const bool shares = model_.layers[layer].heads.keys_are_values;
  const std::uint32_t width = q_width + kv_size + (shares ? 0 : v_size);
  const std::uint32_t tokens = pass.tokens();
  if (heads != nullptr) {
    projected_.swap(heads->projected);
  } else {
    const Stopwatch watch(times_.gemm);
    projected_.resize(std::size_t{tokens} * width);
    weights.qkv.multiply(x, tokens, projected_.data(), pool_, weights.qkv_bias);
  }
  const Stopwatch watch(times_.other);
  const bool chunks = model_.dual_chunk.enabled();
  const std::size_t all_queries = std::size_t{tokens} * q_size;
  queries_.resize(chunks ? 3 * all_queries : all_queries);
  if (model_.attn_output_gate) gates_.resize(all_queries);
  if (model_.value_norm) values_.resize(std::size_t{tokens} * kv_size);
  const std::uint32_t rope = model_.layers[layer].rope;
  const float offset = model_.norm_plus_one ? 1.0F : 0.0F;
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
    float* const row = projected_.data() + std::size_t{t} * width;
    const auto norm = [&](float* heads, std::uint32_t count, const std::vector<float>& weight) {
      if (weight.empty()) return;
      for (std::uint32_t h = 0; h < count; ++h) {
        float* const head = heads + std::size_t{h} * dim;
        const float* const own = weight.data() + (model_.qk_norm_by_head ? std::size_t{h} * dim : 0);
        if (model_.layer_norms)
          layer_norm(head, dim, own, nullptr, eps, head);
        else
          rms_norm(head, dim, own, offset, eps, head);
      }
    };
    const auto turn = [&](float* heads, std::uint32_t count, std::uint32_t by) {
      if (rope == LayerConfig::kNoRope) return;
      for (std::uint32_t h = 0; h < count; ++h)
        pass.rope(rope).rotate(pass.cos(by, t), pass.sin(by, t), heads + std::size_t{h} * dim);
      if (model_.qk_l2_norm) norm(heads, count, ones_);
    };
    const bool late = model_.qk_norm_rotated;
    if (model_.attn_output_gate) take_gates(row, shape.num_q_heads, t);
    float* values = row + q_width + (shares ? 0 : kv_size);
    if (model_.value_norm) {
      float* const normed = values_.data() + std::size_t{t} * kv_size;
      std::memcpy(normed, values, kv_size * sizeof(float));
      norm(normed, shape.num_kv_heads, ones_);
      values = normed;
    }
    if (model_.value_scale != 1) scale(values, v_size, static_cast<float>(model_.value_scale));
    if (heads != nullptr) {
      const float* const squares = heads->squares + t * HeadsOfAllRanks::kSums;
      norm_part(row, weights.q_norm, squares[0], shard.attention.size * q_size, eps);
      norm_part(row + q_width, weights.k_norm, squares[1], shard.attention.size * kv_size, eps);
    } else if (!late) {
      norm(row, shape.num_q_heads, weights.q_norm);
      norm(row + q_width, shape.num_kv_heads, weights.k_norm);
    }
    turn(row + q_width, shape.num_kv_heads, rope);
    if (late) norm(row + q_width, shape.num_kv_heads, weights.k_norm);
    if (chunks) scale(row, q_size, pass.query_scale(t));
    if (const TemperatureTuning& tuning = model_.temperature_tuning;
        (rope == LayerConfig::kNoRope || tuning.everywhere) && tuning.floor_scale > 0) {
      scale(row, q_size, static_cast<float>(tuning.factor(pass.position(t))));
    }
    for (std::uint32_t set = 0; set < (chunks ? 3U : 1U); ++set) {
      float* const queries = queries_.data() + set * all_queries + std::size_t{t} * q_size;
      std::memcpy(queries, row, q_size * sizeof(float));
      turn(queries, shape.num_q_heads, chunks ? set : rope);
      if (late) norm(queries, shape.num_q_heads, weights.q_norm);
    }
    store.store(model_.layers[layer].kv_layer, pass.slot(t), row + q_width, values);
  });
}

// Queries of a row together, their gates to gates_.
void AttentionLayer::take_gates(float* row, std::uint32_t heads, std::uint32_t token) {
  const std::size_t dim = model_.head_dim;
  float* const gates = gates_.data() + std::size_t{token} * heads * dim;
  for (std::uint32_t h = 0; h < heads; ++h) {
    const float* const head = row + 2 * h * dim;
    std::memcpy(gates + h * dim, head + dim, dim * sizeof(float));
    std::memmove(row + h * dim, head, dim * sizeof(float));
  }
}

// MLA: the new latents go to their pages and stay in values_. Absorbed, queries_ [tokens, heads, kv_lora_rank
// + qk_rope_head_dim] meet the latent itself; expanded, queries_ [tokens, heads, head_dim] meet its keys.
void AttentionLayer::project_latent(const Pass& pass, std::uint32_t layer, const Shard& shard,
                                    const MlaWeights& weights, kvcache::KvStore& store, const float* x) {
  const MlaConfig& mla = model_.mla;
  const std::uint32_t tokens = pass.tokens();
  const std::uint32_t heads = shard.q_heads.count();
  const std::uint32_t q_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  const std::uint32_t k_dim = mla.kv_lora_rank + mla.qk_rope_head_dim;
  const bool expanded = pass.mla().expanded();
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  projected_.resize(std::size_t{tokens} * heads * q_dim);
  queries_.resize(std::size_t{tokens} * heads * (expanded ? q_dim : k_dim));
  values_.resize(std::size_t{tokens} * k_dim);
  {
    const Stopwatch watch(times_.gemm);
    const float* q_in = x;
    if (const std::uint32_t q_width = mla.q_lora_rank; q_width > 0) {
      latent_.resize(std::size_t{tokens} * q_width);
      weights.q_a.multiply(x, tokens, latent_.data(), pool_);
      for (std::uint32_t t = 0; t < tokens; ++t) {
        float* const row = latent_.data() + std::size_t{t} * q_width;
        rms_norm(row, q_width, weights.q_a_norm.data(), 0, eps, row);
      }
      q_in = latent_.data();
    }
    weights.q_b.multiply(q_in, tokens, projected_.data(), pool_);
    weights.kv_a.multiply(x, tokens, values_.data(), pool_);
    for (std::uint32_t h = 0; h < heads && !expanded; ++h) {
      weights.absorb_k[h].multiply(projected_.data() + std::size_t{h} * q_dim, tokens, heads * q_dim,
                                   queries_.data() + std::size_t{h} * k_dim, heads * k_dim, nullptr, pool_);
    }
  }
  const Stopwatch watch(times_.other);
  const bool scaled = pass.plan(model_.layers[layer].attention).shape.scaled_latents();
  const std::uint32_t rope = model_.layers[layer].rope;
  const auto turn = [&](std::uint32_t t, float* part) {
    if (rope != LayerConfig::kNoRope) pass.rope(rope).rotate(pass.cos(rope, t), pass.sin(rope, t), part);
  };
  pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
    float* const key = values_.data() + std::size_t{t} * k_dim;
    rms_norm(key, mla.kv_lora_rank, weights.kv_a_norm.data(), 0, eps, key);
    turn(t, key + mla.kv_lora_rank);
    if (scaled) attention::round_scaled_latent(key, mla.kv_lora_rank, mla.qk_rope_head_dim);
    store.store(model_.layers[layer].kv_layer, pass.slot(t), key, nullptr);
    for (std::uint32_t h = 0; h < heads; ++h) {
      const std::size_t head = std::size_t{t} * heads + h;
      const float* const query = projected_.data() + head * q_dim;
      float* turned = queries_.data() + head * k_dim + mla.kv_lora_rank;
      if (expanded) {
        turned = queries_.data() + head * q_dim + mla.qk_nope_head_dim;
        std::memcpy(queries_.data() + head * q_dim, query, mla.qk_nope_head_dim * sizeof(float));
      }
      std::memcpy(turned, query + mla.qk_nope_head_dim, mla.qk_rope_head_dim * sizeof(float));
      turn(t, turned);
    }
  });
}

// The plan's tasks over the threads: one KV head of a request or tile each.
void AttentionLayer::attend(const Pass& pass, std::uint32_t layer, const LayerWeights& weights,
                            const kvcache::KvStore& store, float* out, const attention::DenseKv* dense) {
  const LayerPlan& plan = pass.plan(model_.layers[layer].attention);
  attention::AttentionCall call;
  call.kernel = pass.kernel();
  call.store = &store;
  call.dense = dense;
  call.layer = model_.layers[layer].kv_layer;
  call.shape = plan.shape;
  call.scale = static_cast<float>(model_.attention_scale);
  call.logit_cap = static_cast<float>(model_.attention_logit_cap);
  call.sinks = weights.sinks.empty() ? nullptr : weights.sinks.data();
  call.page_tables = pass.batch().page_tables;
  call.first_row = pass.first_rows();
  call.q = queries_.data();
  if (model_.dual_chunk.enabled()) {
    const std::size_t all = queries_.size() / 3;
    call.q_succ = call.q + Pass::kSucc * all;
    call.q_inter = call.q + Pass::kInter * all;
  }
  call.out = out;
  call.masks = plan.mask_views;
  const std::uint32_t heads = plan.shape.num_kv_heads;
  if (plan.shape.form == attention::AttentionForm::kSparse) {
    pool_.parallel_for(pass.tokens(), [&](std::uint32_t t, std::uint32_t thread) {
      sparse_math_[thread].attend(plan.sparse, call, pass.request(t), t, indexer_.selected(t));
    });
  } else if (plan.shape.form == attention::AttentionForm::kBlockSparse) {
    pool_.parallel_for(pass.tokens() * heads, [&](std::uint32_t i, std::uint32_t thread) {
      const std::uint32_t t = i / heads;
      block_math_[thread].attend(call, plan.shape.select_block, pass.request(t), t, i % heads,
                                 indexer_.selected(i));
    });
  } else if (pass.decodes()) {
    const auto items = static_cast<std::uint32_t>(plan.decode.items.size());
    pool_.parallel_for(items * heads, [&](std::uint32_t i, std::uint32_t thread) {
      math_[thread].decode(plan.decode, call, i / heads, i % heads);
    });
  } else {
    const auto tiles = static_cast<std::uint32_t>(plan.tiles.size());
    pool_.parallel_for(tiles * heads, [&](std::uint32_t i, std::uint32_t thread) {
      math_[thread].extend(plan.extend, call, plan.tiles[i / heads], i % heads);
    });
  }
}

// attended_, each head by the sigmoid (or softplus) of its gate.
void AttentionLayer::weigh_heads(const PackedMatrix& gates, const float* x, std::uint32_t tokens,
                                 std::uint32_t dim) {
  const Stopwatch watch(times_.gemm);
  gates_.resize(std::size_t{tokens} * gates.n());
  gates.multiply(x, tokens, gates_.data(), pool_);
  for (std::size_t h = 0; h < gates_.size(); ++h)
    scale(attended_.data() + h * dim, dim,
          model_.softplus_gates ? softplus(gates_[h]) : 1 / (1 + std::exp(-gates_[h])));
}

void AttentionLayer::forward(const Pass& pass, std::uint32_t layer, const Shard& shard,
                             const LayerWeights& weights, kvcache::KvStore& store,
                             kvcache::KvStore* index_keys, HeadsOfAllRanks* all_heads, const float* x,
                             float* out) {
  const std::uint32_t tokens = pass.tokens();
  const attention::LayerShape& shape = pass.plan(model_.layers[layer].attention).shape;
  const std::uint32_t heads = shape.num_q_heads;
  const bool expanded = pass.mla().expanded();
  const bool absorbed = model_.is_mla() && !expanded;
  if (model_.is_mla()) {
    project_latent(pass, layer, shard, weights.mla, store, x);
    if (model_.layers[layer].indexer)
      indexer_.select(pass, layer, weights.indexer, *index_keys, x, latent_.data());
  } else {
    project_heads(pass, layer, shard, weights, store, all_heads, x);
    if (model_.layers[layer].indexer) indexer_.select_blocks(pass, layer, weights.indexer, *index_keys, x);
  }
  const std::uint32_t v_dim = model_.is_mla() ? model_.mla.v_head_dim : shape.v_head_dim;
  const std::uint32_t dim = absorbed ? model_.mla.kv_lora_rank : v_dim;
  attended_.resize(std::size_t{tokens} * heads * dim);
  {
    const Stopwatch watch(times_.attention);
    attention::DenseKv dense;
    if (expanded)
      dense = expansion_.expand(pass, model_.layers[layer].kv_layer, model_.mla, heads, weights.mla, store,
                                values_.data(), pool_);
    attend(pass, layer, weights, store, attended_.data(), expanded ? &dense : nullptr);
  }
  for (std::size_t i = 0; model_.softplus_gates && model_.attn_output_gate && i < attended_.size(); ++i)
    attended_[i] *= softplus(gates_[i]);
  if (model_.attn_output_gate && !model_.softplus_gates)
    sigmoid_and_mul(gates_.data(), attended_.data(), attended_.size(), attended_.data());
  if (weights.head_gates.n() > 0) weigh_heads(weights.head_gates, x, tokens, dim);
  const Stopwatch watch(times_.gemm);
  if (absorbed) values_.resize(std::size_t{tokens} * heads * v_dim);
  for (std::uint32_t h = 0; h < heads && absorbed; ++h) {
    weights.mla.absorb_v[h].multiply(attended_.data() + std::size_t{h} * dim, tokens, heads * dim,
                                     values_.data() + std::size_t{h} * v_dim, heads * v_dim, nullptr, pool_);
  }
  weights.o.multiply(absorbed ? values_.data() : attended_.data(), tokens, out, pool_);
}

Indexer::Indexer(const ModelConfig& model, ThreadPool& pool, NumericTimes& times)
    : model_(model), pool_(pool), times_(times), math_(pool.size()), block_math_(pool.size()) {}

void Indexer::select_blocks(const Pass& pass, std::uint32_t layer, const IndexerWeights& weights,
                            kvcache::KvStore& keys, const float* x) {
  const std::uint32_t tokens = pass.tokens();
  const std::uint32_t dim = model_.indexer.head_dim;
  const std::uint32_t heads = weights.q.n() / dim;
  const std::uint32_t place = model_.layers[layer].index_layer;
  queries_.resize(std::size_t{tokens} * heads * dim);
  keys_.resize(std::size_t{tokens} * dim);
  {
    const Stopwatch watch(times_.gemm);
    weights.q.multiply(x, tokens, queries_.data(), pool_);
    weights.k.multiply(x, tokens, keys_.data(), pool_);
  }
  {
    const Stopwatch watch(times_.other);
    const std::uint32_t rope = model_.layers[layer].rope;
    const float offset = model_.norm_plus_one ? 1.0F : 0.0F;
    const auto eps = static_cast<float>(model_.rms_norm_eps);
    pool_.parallel_for(tokens, [&](std::uint32_t t, std::uint32_t) {
      const auto normed = [&](float* head, const std::vector<float>& weight) {
        rms_norm(head, dim, weight.data(), offset, eps, head);
        pass.rope(rope).rotate(pass.cos(rope, t), pass.sin(rope, t), head);
      };
      float* const key = keys_.data() + std::size_t{t} * dim;
      normed(key, weights.k_norm);
      keys.store(place, pass.slot(t), key, nullptr);
      for (std::uint32_t h = 0; h < heads; ++h)
        normed(queries_.data() + (std::size_t{t} * heads + h) * dim, weights.q_norm);
    });
  }
  const Stopwatch watch(times_.attention);
  attention::IndexCall call;
  call.keys = &keys;
  call.layer = place;
  call.heads = heads;
  call.head_dim = dim;
  call.top_k = model_.indexer.top_k;
  call.page_tables = pass.batch().page_tables;
  call.q = queries_.data();
  const attention::BlockCall blocks{model_.indexer.block, model_.indexer.local_blocks};
  if (selected_.size() < std::size_t{tokens} * heads) selected_.resize(std::size_t{tokens} * heads);
  pool_.parallel_for(tokens * heads, [&](std::uint32_t i, std::uint32_t thread) {
    const std::uint32_t t = i / heads;
    block_math_[thread].select(call, blocks, pass.request(t), t, pass.position(t), i % heads, selected_[i]);
  });
}

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
    weights.q.multiply(q_lora, tokens, queries_.data(), pool_);
    weights.k.multiply(x, tokens, keys_.data(), pool_);
    weights.heads.multiply(x, tokens, weights_.data(), pool_);
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
