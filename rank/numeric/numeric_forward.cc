#include "rank/numeric/numeric_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "proto/base/error.h"
#include "rank/config/shard.h"
#include "rank/linear/vector_ops.h"
#include "rank/llm/layers.h"
#include "rank/weights/host_memory.h"

namespace tpsim::rank {
namespace {

kvcache::KvStoreConfig store_config(const ModelConfig& model, const std::vector<AttentionLayers>& kinds,
                                    const NumericOptions& options) {
  const AttentionLayers& attention = kinds.front();
  kvcache::KvStoreConfig config;
  // Scaled latents are rounded before they are stored.
  config.format = attention.shape.scaled_latents() ? NumberFormat::kFp32 : options.kv_format;
  config.num_layers = model.num_layers - model.linear.num_layers;
  config.num_pages = options.num_pages;
  config.page_size = options.page_size;
  config.tag_pages = options.tag_pages;
  if (options.free_windows) {
    for (const LayerConfig& layer : model.layers) {
      if (!layer.linear) config.windowed.push_back(layer.sliding_window > 0);
    }
  }
  for (const LayerConfig& layer : model.layers) {
    if (layer.linear || !model.has_kinds_of_heads()) continue;
    const attention::LayerShape& shape = kinds[layer.attention].shape;
    config.layers.push_back({shape.num_kv_heads, shape.head_dim, shape.v_head_dim});
  }
  config.num_kv_heads = attention.shape.num_kv_heads;
  config.k_dim = attention.shape.head_dim;
  config.v_dim = attention.shape.v_head_dim;
  config.value_in_key = model.is_mla() || model.is_compressed();
  return config;
}

// Index keys: one head of a key without a value, in the layers that have an indexer.
kvcache::KvStoreConfig index_store_config(const ModelConfig& model, const NumericOptions& options) {
  kvcache::KvStoreConfig config;
  // With an fp8 cache they are rounded with their scales before they are stored; MiniMax M3's have none.
  const bool scaled = options.kv_format == NumberFormat::kFp8E4M3 && !model.is_block_sparse();
  config.format = scaled ? NumberFormat::kFp32 : options.kv_format;
  config.num_layers = model.indexer.num_layers;
  config.num_pages = options.num_pages;
  config.page_size = options.page_size;
  config.tag_pages = options.tag_pages;
  config.num_kv_heads = 1;
  config.k_dim = model.indexer.head_dim;
  return config;
}

// Entries of compressed tokens, or what compressors keep of each token, in the layers that compress.
kvcache::KvStoreConfig compressed_store_config(const ModelConfig& model, const NumericOptions& options,
                                               bool states) {
  kvcache::KvStoreConfig config;
  config.format = states ? NumberFormat::kFp32 : options.kv_format;
  config.num_pages = options.num_pages;
  config.page_size = options.page_size;
  config.tag_pages = options.tag_pages;
  if (!model.is_compressed()) return config;
  config.num_layers = model.num_layers;
  for (const LayerConfig& layer : model.layers)
    config.layers.push_back({layer.compress_ratio > 0 ? 1U : 0U,
                             states ? CompressedAttentionLayer::state_size(model, layer) : model.head_dim});
  return config;
}

ParallelLayout layout_of(const NumericOptions& options, std::uint32_t tp_size) {
  ParallelLayout layout = options.layout;
  layout.tp_size = tp_size;
  return layout;
}

// Bytes of the KV cache of all ranks.
std::uint64_t kv_bytes(const ModelConfig& model, const NumericOptions& options, std::uint32_t tp_size) {
  const auto layers = attention_layers(model, make_shard(model, layout_of(options, tp_size), 0),
                                       options.kv_format, options.sparse_token_bytes);
  return (kvcache::KvStore::bytes_per_token(store_config(model, layers, options)) +
          kvcache::KvStore::bytes_per_token(index_store_config(model, options)) +
          kvcache::KvStore::bytes_per_token(compressed_store_config(model, options, false)) +
          kvcache::KvStore::bytes_per_token(compressed_store_config(model, options, true))) *
         options.num_pages * options.page_size * tp_size;
}

// `load`: the weights of a shard; its place among the ranks of this process is the second argument.
template <typename Load>
LoadedRanks load_all(const ModelConfig& model, const NumericOptions& options, const Collectives& collectives,
                     Load load) {
  const std::uint32_t tp = collectives.tp_size();
  const std::uint64_t parameters = num_parameters(model, make_shard(model, layout_of(options, tp), 0));
  const std::uint64_t bytes = parameters * (options.weight_type == WeightType::kBf16 ? 2 : 4) * tp;
  check_host_memory(
      bytes + kv_bytes(model, options, tp),
      fmt::format("the weights of {} ranks of {} and their KV cache (--max-total-tokens)", tp, model.name));
  LoadedRanks ranks;
  for (std::uint32_t i = 0; i < collectives.num_ranks(); ++i) {
    ranks.push_back(std::make_shared<const RankWeights>(
        load(make_shard(model, layout_of(options, tp), collectives.first_rank() + i), i)));
  }
  return ranks;
}

}  // namespace

LoadedRanks load_ranks(const ModelConfig& model, const TensorSource& source, const NumericOptions& options,
                       const Collectives& collectives) {
  return load_all(model, options, collectives, [&](const Shard& shard, std::uint32_t) {
    return load_rank_weights(model, shard, options.weight_type, source);
  });
}

LoadedRanks load_draft_head_ranks(const DraftModel& draft, const TensorSource& source,
                                  const NumericOptions& options, const Collectives& collectives,
                                  const LoadedRanks& target) {
  return load_all(draft.config, options, collectives, [&](const Shard& shard, std::uint32_t rank) {
    return load_draft_head_weights(draft, shard, options.weight_type, source, target.at(rank));
  });
}

NumericForward::NumericForward(const ModelConfig& model, LoadedRanks weights, NumericOptions options,
                               std::unique_ptr<attention::AttentionBackend> backend, Collectives& collectives,
                               ThreadPool& pool, std::shared_ptr<ImageEncoder> images)
    : model_(model),
      options_(options),
      backend_(std::move(backend)),
      collectives_(collectives),
      pool_(pool),
      attention_(model_, pool, times_),
      compressed_attention_(model_, pool, times_),
      streams_(model_, pool, times_),
      linear_attention_(model_, pool, times_),
      mlp_(model_, pool, times_),
      exchange_(model_, mlp_, collectives_, times_),
      images_(std::move(images), options_.layout.dp_size) {
  check_host_memory(kv_bytes(model_, options_, collectives_.tp_size()),
                    fmt::format("the KV cache of {} ranks (--max-total-tokens)", collectives_.tp_size()));
  for (const RopeConfig& rope : model_.ropes)
    ropes_.emplace_back(rope, model_.rope_dim(rope), model_.max_position_embeddings);
  for (std::shared_ptr<const RankWeights>& loaded : weights) {
    layers_ = attention_layers(model_, loaded->shard, options_.kv_format, options_.sparse_token_bytes);
    const kvcache::KvStoreConfig store = store_config(model_, layers_, options_);
    const LinearLayers linear = linear_layers(model_, loaded->shard);
    ranks_.push_back(std::make_unique<Rank>(
        std::move(loaded), store, linear, index_store_config(model_, options_),
        compressed_store_config(model_, options_, false), compressed_store_config(model_, options_, true)));
  }
  parts_.resize(ranks_.size());
}

void NumericForward::release_pages(std::uint32_t dp_rank, std::span<const std::uint32_t> pages) {
  for (const auto& rank : ranks_) {
    if (rank->dp_rank != dp_rank) continue;
    for (const std::uint32_t page : pages) rank->store.release_windows(page);
  }
}

void NumericForward::move_tokens(std::uint32_t dp_rank, std::span<const std::uint32_t> from,
                                 std::span<const std::uint32_t> to) {
  for (const auto& rank : ranks_) {
    if (rank->dp_rank != dp_rank) continue;
    for (std::size_t i = 0; i < from.size(); ++i) {
      rank->store.move(from[i], to[i]);
      rank->index_keys.move(from[i], to[i]);
    }
  }
}

void NumericForward::copy_pages(std::uint32_t dp_rank, std::span<const std::uint32_t> from,
                                std::span<const std::uint32_t> to) {
  for (const auto& rank : ranks_) {
    if (rank->dp_rank != dp_rank) continue;
    for (kvcache::KvStore* const store : {&rank->store, &rank->index_keys}) {
      for (std::size_t i = 0; i < from.size(); ++i) {
        store->hand_out(to[i]);
        for (std::uint32_t slot = 0; slot < options_.page_size; ++slot)
          store->move(from[i] * options_.page_size + slot, to[i] * options_.page_size + slot);
      }
    }
  }
}

std::vector<float>& NumericForward::part(std::size_t rank, std::size_t size) {
  parts_[rank].resize(size);
  return parts_[rank];
}

void NumericForward::reduce(std::uint64_t count, float* out) {
  const Stopwatch watch(times_.collective);
  views_.clear();
  for (const std::vector<float>& part : parts_) views_.push_back(part.data());
  collectives_.all_reduce(views_, count, out);
}

void NumericForward::norm(const std::vector<float>& weight, const float* x, std::uint32_t rows, float* out,
                          std::size_t stride) {
  const std::uint32_t size = model_.hidden_size;
  pool_.parallel_for(rows, [&](std::uint32_t r, std::uint32_t) {
    const float* const from = x + std::size_t{r} * size;
    float* const to = out + r * (stride > 0 ? stride : size);
    if (!weight.empty() && model_.layer_norms) {
      layer_norm(from, size, weight.data(), model_.norm_bias ? weight.data() + size : nullptr,
                 static_cast<float>(model_.rms_norm_eps), to);
    } else if (!weight.empty()) {
      rms_norm(from, size, weight.data(), model_.norm_plus_one ? 1.0F : 0.0F,
               static_cast<float>(model_.rms_norm_eps), to);
    } else if (from != to) {
      std::copy_n(from, size, to);
    }
  });
}

// Of a head that drafts: hidden_, so far the embedding, becomes what its first layer reads. What it goes on
// with has the hidden size; EAGLE3 joins nothing to that.
void NumericForward::join(std::span<const TokenBatch> batches, const DraftHeadWeights& draft) {
  const std::uint32_t size = model_.hidden_size;
  const std::span<const float> given = batches.front().hidden;
  const std::size_t width = given.size() / tokens_;
  if (draft.kind == DraftKind::kEagle3) {
    embedded_.swap(hidden_);
    if (width == size) {
      hidden_.assign(given.begin(), given.end());
      return;
    }
    joined_.assign(given.begin(), given.end());
  } else {
    joined_.resize(std::size_t{tokens_} * 2 * size);
    norm(draft.embedding_norm, hidden_.data(), tokens_, joined_.data(), std::size_t{2} * size);
    norm(draft.hidden_norm, given.data(), tokens_, joined_.data() + size, std::size_t{2} * size);
  }
  hidden_.resize(std::size_t{tokens_} * size);
  const Stopwatch watch(times_.gemm);
  draft.join.multiply(joined_.data(), tokens_, hidden_.data(), pool_, draft.join_bias);
}

// Fills normed_ with what the layer's attention reads, and returns how wide that is.
std::uint32_t NumericForward::norm_inputs(const LayerWeights& layer) {
  const std::uint32_t size = model_.hidden_size;
  const DraftHeadWeights* const draft = ranks_.front()->weights.draft.get();
  if (draft == nullptr || draft->kind != DraftKind::kEagle3) {
    normed_.resize(hidden_.size());
    norm(layer.input_norm, hidden_.data(), tokens_, normed_.data());
    return size;
  }
  normed_.resize(2 * hidden_.size());
  norm(layer.input_norm, embedded_.data(), tokens_, normed_.data(), std::size_t{2} * size);
  norm(draft->hidden_norm, hidden_.data(), tokens_, normed_.data() + size, std::size_t{2} * size);
  return 2 * size;
}

// What goes into `layer`, or, after the last one, comes out.
void NumericForward::capture(std::uint32_t layer) {
  const std::size_t size = model_.hidden_size;
  const std::vector<std::uint32_t>& wanted = options_.hidden_layers;
  if (wanted.empty()) {
    if (layer < model_.num_layers || options_.hidden == NumericOptions::Hidden::kNone) return;
    static const std::vector<float> kNone;
    captured_.resize(hidden_.size());
    norm(options_.hidden == NumericOptions::Hidden::kNormed ? ranks_.front()->weights.final_norm : kNone,
         hidden_.data(), tokens_, captured_.data());
    return;
  }
  const auto at = std::find(wanted.begin(), wanted.end(), layer);
  if (at == wanted.end()) return;
  captured_.resize(hidden_.size() * wanted.size());
  norm({}, hidden_.data(), tokens_, captured_.data() + size * static_cast<std::size_t>(at - wanted.begin()),
       size * wanted.size());
}

void NumericForward::reduce_into_hidden(const std::vector<float>& bias, const std::vector<float>& post_norm) {
  summed_.resize(hidden_.size());
  reduce(hidden_.size(), summed_.data());
  const Stopwatch watch(times_.other);
  if (!bias.empty()) {
    for (std::uint32_t t = 0; t < tokens_; ++t)
      add(summed_.data() + std::size_t{t} * bias.size(), bias.data(), bias.size());
  }
  if (!post_norm.empty()) norm(post_norm, summed_.data(), tokens_, summed_.data());
  if (model_.residual_scale != 1)
    scale(summed_.data(), summed_.size(), static_cast<float>(model_.residual_scale));
  if (streams_.enabled()) return streams_.expand(summed_.data());
  add(hidden_.data(), summed_.data(), hidden_.size());
}

template <typename Fill>
void NumericForward::fill_own(std::size_t rank, std::size_t width, Fill fill) {
  const Part& own = of_dp_[ranks_[rank]->dp_rank];
  std::vector<float>& out = part(rank, tokens_ * width);
  float* const first = out.data() + own.first_token * width;
  std::fill(out.data(), first, 0.0F);
  std::fill(first + own.tokens * width, out.data() + out.size(), 0.0F);
  if (own.tokens > 0) fill(own, first);
}

// What norms over all heads of a layer need of every rank.
void NumericForward::share_squares(std::uint32_t layer) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    fill_own(r, HeadsOfAllRanks::kSums, [&](const Part& own, float* out) {
      attention_.project(own.tokens, rank.weights.shard, rank.weights.layers[layer],
                         normed_.data() + own.first_token * std::size_t{model_.hidden_size}, rank.heads, out);
    });
  }
  squares_.resize(tokens_ * HeadsOfAllRanks::kSums);
  reduce(squares_.size(), squares_.data());
  for (const auto& rank : ranks_)
    rank->heads.squares = squares_.data() + of_dp_[rank->dp_rank].first_token * HeadsOfAllRanks::kSums;
}

// SGLang's tensor_split of a data-parallel rank's tokens over its ranks.
MlpLayer::Rows NumericForward::whole_rows(const Rank& rank) const {
  const Part& own = of_dp_[rank.dp_rank];
  const Split split = rank.weights.shard.attention;
  const std::uint32_t share = own.tokens / split.size;
  const std::uint32_t longer = own.tokens % split.size;  // the first ranks take one more
  const std::uint32_t first = split.rank * share + std::min(split.rank, longer);
  return {own.first_token + first, share + (split.rank < longer ? 1 : 0)};
}

void NumericForward::exchange_experts(std::uint32_t layer) {
  std::vector<const MoeWeights*> weights;
  std::vector<MlpLayer::Rows> own;
  std::vector<float*> out;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    weights.push_back(&ranks_[r]->weights.layers[layer].moe);
    own.push_back(whole_rows(*ranks_[r]));
    out.push_back(part(r, hidden_.size()).data());
  }
  exchange_.forward(weights, own, normed_.data(), tokens_, out);
}

// The MLP or the experts, with the norms around them.
void NumericForward::add_feed_forward(std::uint32_t layer) {
  if (model_.layers[layer].bare) return;
  const LayerWeights& shared = ranks_.front()->weights.layers[layer];
  if (streams_.enabled()) streams_.collapse(shared.mlp_streams, hidden_.data());
  normed_.resize(hidden_.size());
  if (!model_.parallel_block)  // else it still holds what attention read
    norm(model_.post_norms ? shared.pre_feedforward_norm : shared.post_attention_norm, hidden_.data(),
         tokens_, normed_.data());
  const bool moe = model_.layers[layer].moe;
  if (moe && model_.moe.gemma_router) return add_gemma_experts(layer);
  const bool exchanged = moe && options_.layout.a2a();
  if (exchanged) exchange_experts(layer);
  for (std::size_t r = 0; !exchanged && r < ranks_.size(); ++r) {
    const RankWeights& weights = ranks_[r]->weights;
    mlp_.forward(weights.layers[layer], moe, weights.shard, normed_.data(), tokens_, whole_rows(*ranks_[r]),
                 part(r, hidden_.size()).data());
  }
  reduce_into_hidden({}, shared.post_feedforward_norm);
}

// Gemma 4: the dense MLP reads normed_, router and experts read the hidden state, each through a norm of its
// own; both results are normed, their sum, too.
void NumericForward::add_gemma_experts(std::uint32_t layer) {
  const LayerWeights& shared = ranks_.front()->weights.layers[layer];
  const MlpLayer::Rows all{0, tokens_};
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    mlp_.shared_experts(ranks_[r]->weights.layers[layer].moe, normed_.data(), tokens_, all,
                        part(r, hidden_.size()).data());
  summed_.resize(hidden_.size());
  reduce(hidden_.size(), summed_.data());
  norm(shared.moe.dense_post_norm, summed_.data(), tokens_, summed_.data());
  norm(shared.moe.pre_norm, hidden_.data(), tokens_, normed_.data());
  routed_.resize(hidden_.size());
  norm(shared.moe.router_norm, hidden_.data(), tokens_, routed_.data());
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const MoeWeights& moe = ranks_[r]->weights.layers[layer].moe;
    std::vector<float>& out = part(r, hidden_.size());
    std::fill(out.begin(), out.end(), 0.0F);
    mlp_.add_routed(moe, mlp_.assign(moe, routed_.data(), all), normed_.data(), tokens_, out.data());
  }
  reduce(hidden_.size(), routed_.data());
  norm(shared.moe.post_norm, routed_.data(), tokens_, routed_.data());
  add(summed_.data(), routed_.data(), summed_.size());
  norm(shared.post_feedforward_norm, summed_.data(), tokens_, summed_.data());
  add(hidden_.data(), summed_.data(), hidden_.size());
}

// Each rank knows a part of the vocabulary; the sum over ranks has every row once.
void NumericForward::embed() {
  const std::uint32_t size = model_.hidden_size;
  hidden_.resize(std::size_t{tokens_} * size);
  {
    const Stopwatch watch(times_.other);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const RankWeights& weights = ranks_[r]->weights.with_embedding();
      const std::uint64_t entries = weights.shard.embedding_vocab;
      const std::uint64_t first = weights.shard.attention.rank * entries;
      fill_own(r, size, [&](const Part& own, float* out) {
        const std::span<const std::uint32_t> ids = images_.token_ids(ranks_[r]->dp_rank);
        pool_.parallel_for(own.tokens, [&](std::uint32_t t, std::uint32_t) {
          float* const row = out + std::size_t{t} * size;
          const std::uint64_t id = ids[t];
          if (id >= first && id - first < entries) {
            weights.embedding.row(static_cast<std::uint32_t>(id - first), row);
          } else {
            std::fill(row, row + size, 0.0F);
          }
        });
      });
    }
  }
  reduce(hidden_.size(), hidden_.data());
  if (model_.embedding_scale != 1)
    scale(hidden_.data(), hidden_.size(), static_cast<float>(model_.embedding_scale));
  images_.embed(hidden_.data());
}

// The rows whose logits are wanted, normed.
void NumericForward::last_rows() {
  const std::uint32_t size = model_.hidden_size;
  normed_.resize(std::size_t{wanted_} * size);
  for (const Part& of : of_dp_) {
    for (std::uint32_t i = 0; i < of.wanted; ++i) {
      const std::uint32_t row = of.all ? i : of.pass->last_row(i);
      std::memcpy(normed_.data() + std::size_t{of.first_wanted + i} * size,
                  hidden_.data() + std::size_t{of.first_token + row} * size, size * sizeof(float));
    }
  }
  norm(ranks_.front()->weights.final_norm, normed_.data(), wanted_, normed_.data());
}

// Fills gathered_ [requests, padded vocabulary]. A head cut over all ranks has a part of every row's columns
// on each; one that each data-parallel rank has of its own, only in the rows of its requests.
void NumericForward::gather_logits(const Rank& first) {
  const std::uint32_t size = model_.hidden_size;
  const Shard& shape = first.weights.with_head().shard;
  const std::uint32_t columns = shape.vocab;
  const std::size_t width = std::size_t{columns} * shape.head.size;
  const bool own_head = shape.head.size < collectives_.tp_size();
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Stopwatch watch(times_.gemm);
    const RankWeights& weights = ranks_[r]->weights.with_head();
    const PackedMatrix& matrix = weights.head_matrix();
    if (!own_head) {
      matrix.multiply(normed_.data(), wanted_, part(r, std::size_t{wanted_} * columns).data(), pool_);
      continue;
    }
    std::vector<float>& out = part(r, wanted_ * width);
    std::fill(out.begin(), out.end(), 0.0F);
    const Part& own = of_dp_[ranks_[r]->dp_rank];
    if (own.pass == nullptr) continue;
    matrix.multiply(normed_.data() + std::size_t{own.first_wanted} * size, own.wanted, size,
                    out.data() + own.first_wanted * width + std::size_t{weights.shard.head.rank} * columns,
                    static_cast<std::uint32_t>(width), nullptr, pool_);
  }
  gathered_.resize(wanted_ * width);
  const Stopwatch watch(times_.collective);
  views_.clear();
  for (const std::vector<float>& part : parts_) views_.push_back(part.data());
  if (own_head) {
    collectives_.all_reduce(views_, gathered_.size(), gathered_.data());
  } else {
    collectives_.all_gather(views_, wanted_, columns, gathered_.data());
  }
}

std::span<const float> NumericForward::head() {
  last_rows();
  gather_logits(*ranks_.front());
  const std::size_t width = gathered_.size() / wanted_;
  logits_.resize(std::size_t{wanted_} * model_.vocab_size);
  for (std::uint32_t i = 0; i < wanted_; ++i)
    std::memcpy(logits_.data() + std::size_t{i} * model_.vocab_size, gathered_.data() + i * width,
                model_.vocab_size * sizeof(float));
  if (model_.logit_scale != 1) scale(logits_.data(), logits_.size(), static_cast<float>(model_.logit_scale));
  if (model_.final_logit_cap > 0)
    soft_cap(logits_.data(), logits_.size(), static_cast<float>(model_.final_logit_cap));
  return logits_;
}

// Pages that begin after the stored prefix have a new owner.
void NumericForward::hand_out_pages(std::uint32_t dp_rank, const TokenBatch& batch) {
  const std::uint32_t page_size = options_.page_size;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    const std::uint32_t end = batch.prefix_lens[i] + batch.q_lens[i];
    for (std::uint32_t at = (batch.prefix_lens[i] + page_size - 1) / page_size; at * page_size < end; ++at) {
      for (const auto& rank : ranks_) {
        if (rank->dp_rank != dp_rank) continue;
        rank->store.hand_out(batch.page_tables[i][at]);
        rank->index_keys.hand_out(batch.page_tables[i][at]);
        rank->compressed.entries.hand_out(batch.page_tables[i][at]);
        rank->compressed.states.hand_out(batch.page_tables[i][at]);
      }
    }
  }
}

// The next token, at position L, looks back to L + 1 - window; pages that end there or before are done with.
void NumericForward::release_what_slid_out(std::uint32_t dp_rank, const TokenBatch& batch) {
  std::uint32_t window = 0;
  for (const LayerConfig& layer : model_.layers) window = std::max(window, layer.sliding_window);
  if (!options_.free_windows || window == 0) return;
  // What is verified may be given back: a step keeps q_len tokens at most, and the next one says how many.
  const bool verifies = attention::verifies_drafts(batch.metadata.forward_mode);
  const auto pages_behind = [&](std::uint32_t length) {
    return length + 1 > window ? (length + 1 - window) / options_.page_size : 0;
  };
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    const std::uint32_t prefix = batch.prefix_lens[i];
    const std::uint32_t kept = std::min(prefix, batch.q_lens[i]);
    const std::uint32_t first = pages_behind(verifies ? prefix - kept : prefix);
    const std::uint32_t last = pages_behind(verifies ? prefix : prefix + batch.q_lens[i]);
    release_pages(dp_rank, batch.page_tables[i].subspan(first, last - first));
  }
}

// Of the pass, one data-parallel rank's after the other.
std::vector<std::uint32_t> NumericForward::token_ids() const {
  std::vector<std::uint32_t> all;
  for (std::uint32_t dp = 0; dp < of_dp_.size(); ++dp) {
    if (of_dp_[dp].tokens == 0) continue;
    const std::span<const std::uint32_t> ids = images_.token_ids(dp);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

// Where each data-parallel rank's tokens and requests are, and their plans.
void NumericForward::begin(std::span<const TokenBatch> batches) {
  of_dp_.clear();
  tokens_ = wanted_ = 0;
  for (std::size_t dp = 0; dp < batches.size(); ++dp) {
    const TokenBatch& batch = batches[dp];
    Part& of = of_dp_.emplace_back();
    of.first_token = tokens_;
    of.first_wanted = wanted_;
    if (batch.q_lens.empty()) continue;
    hand_out_pages(static_cast<std::uint32_t>(dp), batch);
    of.pass = std::make_unique<const Pass>(model_.dual_chunk, ropes_, batch, layers_, options_.page_size,
                                           *backend_, images_.spans(static_cast<std::uint32_t>(dp)),
                                           model_.vision.both_ways && backend_->masks_images());
    of.tokens = of.pass->tokens();
    tokens_ += of.tokens;
    of.all = batch.all_logits;
    of.wanted = of.all ? of.tokens : of.pass->requests();
    wanted_ += of.wanted;
  }
}

std::span<const float> NumericForward::forward(std::span<const TokenBatch> batches) {
  if (batches.size() != options_.layout.dp_size)
    throw std::invalid_argument("NumericForward: batches of another number of data-parallel ranks");
  images_.begin(batches);
  begin(batches);
  embed();
  if (const DraftHeadWeights* const draft = ranks_.front()->weights.draft.get()) join(batches, *draft);
  if (streams_.enabled()) streams_.begin(hidden_);
  mlp_.begin(token_ids());
  std::uint32_t linear_index = 0;  // among the gated delta-nets
  for (std::uint32_t i = 0; i < model_.num_layers; ++i) {
    const LayerWeights& shared = ranks_.front()->weights.layers[i];  // norms are the same on every rank
    capture(i);
    if (streams_.enabled()) streams_.collapse(shared.attention_streams, hidden_.data());
    const std::size_t width = norm_inputs(shared);
    if (model_.qk_norm_over_heads) share_squares(i);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = *ranks_[r];
      fill_own(r, model_.hidden_size, [&](const Part& own, float* out) {
        const float* const x = normed_.data() + own.first_token * width;
        const LayerWeights& weights = rank.weights.layers[i];
        if (model_.layers[i].linear) {
          linear_attention_.forward(*own.pass, linear_index, rank.linear_layers, weights.linear,
                                    rank.linear_states, x, out);
        } else if (model_.is_compressed()) {
          compressed_attention_.forward(*own.pass, i, weights, rank.store, rank.compressed, rank.index_keys,
                                        x, out);
        } else {
          attention_.forward(*own.pass, i, rank.weights.shard, weights, rank.store, &rank.index_keys,
                             model_.qk_norm_over_heads ? &rank.heads : nullptr, x, out);
        }
      });
    }
    if (model_.layers[i].linear) ++linear_index;
    static const std::vector<float> kNone;
    reduce_into_hidden(shared.o_bias, model_.post_norms ? shared.post_attention_norm : kNone);
    add_feed_forward(i);
    if (shared.scalar != 1) scale(hidden_.data(), hidden_.size(), shared.scalar);
    images_.add_deepstack(i, hidden_.data());
  }
  if (streams_.enabled()) streams_.head(ranks_.front()->weights.head_streams, hidden_.data());
  capture(model_.num_layers);
  for (std::size_t dp = 0; dp < batches.size(); ++dp)
    release_what_slid_out(static_cast<std::uint32_t>(dp), batches[dp]);
  return head();
}

}  // namespace tpsim::rank
