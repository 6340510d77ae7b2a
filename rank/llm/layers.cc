#include "rank/llm/layers.h"

#include <algorithm>

#include "attention/sparse_kernels.h"

namespace tpsim::rank {
namespace {

// DeepSeek V4's pools. A latent has its elements in fp8 but for the rotated ones in 16 bit, and 8 bytes of
// scales. A compressor keeps what it has not yet compressed, in fp32: rings of 8 entries for each page of 256
// tokens of the window pool where 4 tokens make one; those of 128 tokens belong to requests and are small.
// Source: SGLang 0.5.23, model_executor/pool_configurator.py (DSV4PoolConfigurator) and
// mem_cache/deepseek_v4_memory_pool.py. Releases up to 0.5.12 keep the second kind by token, too, 4 KiB each.
constexpr double kCompressPage = 256, kCompressRing = 8,
                 kCompressState = 16;  // bytes of an element, all told

std::uint32_t compressed_latent_bytes(const ModelConfig& model) {
  return model.head_dim + model.compressed.rope_head_dim + 8;
}

double compressed_bytes_per_token(const ModelConfig& model) {
  double bytes = 0;
  for (const AttentionKind& kind : model.attention) {
    if (kind.compress_ratio == 0) continue;
    const std::uint32_t key = kind.indexer ? attention::index_key_bytes(model.indexer.head_dim) : 0;
    bytes += double(compressed_latent_bytes(model) + key) / kind.compress_ratio * kind.num_layers;
  }
  return bytes;
}

double compressed_window_bytes(const ModelConfig& model) {
  double bytes = 0;
  for (const AttentionKind& kind : model.attention) {
    double one = compressed_latent_bytes(model);
    if (kind.indexer)
      one += kCompressRing / kCompressPage * kCompressState * (model.head_dim + model.indexer.head_dim);
    bytes += one * kind.num_layers;
  }
  return bytes;
}

}  // namespace

std::vector<AttentionLayers> attention_layers(const ModelConfig& model, const Shard& shard,
                                              NumberFormat kv_format, std::uint32_t sparse_token_bytes) {
  std::vector<AttentionLayers> out;
  for (const AttentionKind& kind : model.attention) {
    AttentionLayers& layers = out.emplace_back();
    layers.count = kind.num_layers;
    attention::LayerShape& shape = layers.shape;
    const AttentionHeads heads = model.heads_of(kind);
    shape.num_q_heads = heads.num_heads / shard.attention.size;
    shape.num_kv_heads = std::max(1U, heads.num_kv_heads / shard.attention.size);
    shape.head_dim = heads.head_dim;
    shape.v_head_dim = heads.value_dim();
    shape.sliding_window = kind.sliding_window;
    shape.attention_chunk = kind.attention_chunk;
    if (model.dual_chunk.enabled()) shape.dual_chunk_len = model.dual_chunk.chunk_len();
    shape.kv_format = kv_format;
    if (model.is_compressed()) {
      shape.form = attention::AttentionForm::kCompressed;
      shape.compress_ratio = kind.compress_ratio;
      shape.token_bytes = compressed_latent_bytes(model);
      shape.index_head_dim = model.indexer.head_dim;
      if (kind.indexer) {
        shape.top_k = model.indexer.top_k;
        shape.index_heads = model.indexer.num_heads;
      }
    }
    if (model.is_block_sparse() && kind.indexer) {
      shape.form = attention::AttentionForm::kBlockSparse;
      shape.top_k = model.indexer.top_k;
      shape.select_block = model.indexer.block;
      shape.index_heads = std::max(1U, model.indexer.num_heads / shard.attention.size);
      shape.index_head_dim = model.indexer.head_dim;
    }
    if (!model.is_mla()) continue;
    // Absorbed: all heads share one latent and one rotated key, which every rank keeps.
    shape.form = attention::AttentionForm::kMlaAbsorbed;
    shape.config_kv_heads = shape.num_kv_heads;
    shape.few_kv_splits = model.facts.few_mla_splits;
    shape.num_kv_heads = 1;
    shape.head_dim = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim;
    shape.v_head_dim = model.mla.kv_lora_rank;
    layers.expanded = shape;
    layers.expanded.form = attention::AttentionForm::kMlaExpanded;
    layers.expanded.num_kv_heads = shape.num_q_heads;
    layers.expanded.config_kv_heads = 0;
    layers.expanded.head_dim = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim;
    layers.expanded.v_head_dim = model.mla.v_head_dim;
    layers.expanded.kv_format = NumberFormat::kBf16;
    if (!model.is_sparse()) continue;
    shape.form = attention::AttentionForm::kSparse;
    shape.top_k = model.indexer.top_k;
    if (kind.indexer) shape.index_heads = model.indexer.num_heads;
    shape.index_head_dim = model.indexer.head_dim;
    for (const auto part : {&attention::LayerShape::top_k, &attention::LayerShape::index_heads,
                            &attention::LayerShape::index_head_dim})
      layers.expanded.*part = shape.*part;
    shape.token_bytes = sparse_token_bytes > 0
                            ? sparse_token_bytes
                            : static_cast<std::uint32_t>(stored_bytes(kv_format, shape.kv_elements()));
  }
  return out;
}

LinearLayers linear_layers(const ModelConfig& model, const Shard& shard) {
  const LinearAttentionConfig& linear = model.linear;
  if (!model.is_hybrid_linear()) return {};
  return {.kind = linear.kind,
          .count = linear.num_layers,
          .num_k_heads = std::max(linear.num_key_heads > 0 ? 1U : 0U, linear.num_key_heads / shard.tp_size),
          .num_v_heads = linear.num_value_heads / shard.tp_size,
          .k_dim = linear.key_head_dim,
          .v_dim = linear.value_head_dim,
          .conv_kernel = linear.conv_kernel,
          .state_bytes = linear.state_bytes,
          .chunk = linear.chunk,
          .tuned = model.facts.tunes_scans};
}

std::uint64_t kv_bytes_per_token(const ModelConfig& model, const Shard& shard, NumberFormat kv_format,
                                 std::uint32_t sparse_token_bytes) {
  std::uint64_t bytes = 0;
  if (model.is_compressed())
    return window_bytes_per_token(model, shard, kv_format) +
           static_cast<std::uint64_t>(compressed_bytes_per_token(model));
  for (const AttentionLayers& layers : attention_layers(model, shard, kv_format, sparse_token_bytes)) {
    const attention::LayerShape& shape = layers.shape;
    if (shape.form == attention::AttentionForm::kSparse) {
      // A layer without an indexer keeps no index keys (SGLang 0.5.23; up to 0.5.12 they were counted for
      // all).
      const std::uint32_t key = shape.index_heads > 0 ? attention::index_key_bytes(shape.index_head_dim) : 0;
      bytes += (std::uint64_t{shape.token_bytes} + key) * layers.count;
      continue;
    }
    bytes += stored_bytes(kv_format, shape.kv_elements()) * layers.count;
    if (shape.form == attention::AttentionForm::kBlockSparse)
      bytes +=
          std::uint64_t{attention::block_index_key_bytes(shape.index_head_dim, kv_format)} * layers.count;
  }
  return bytes;
}

std::uint64_t window_bytes_per_token(const ModelConfig& model, const Shard& shard, NumberFormat kv_format) {
  std::uint64_t bytes = 0;
  if (model.is_compressed()) return static_cast<std::uint64_t>(compressed_window_bytes(model));
  for (const AttentionLayers& layers : attention_layers(model, shard, kv_format)) {
    if (layers.shape.sliding_window == 0 && layers.shape.attention_chunk == 0) continue;
    bytes += stored_bytes(kv_format, layers.shape.kv_elements()) * layers.count;
  }
  return bytes;
}

}  // namespace tpsim::rank
