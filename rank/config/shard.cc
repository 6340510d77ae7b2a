#include "rank/config/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kVocabPadding = 64;  // SGLang's DEFAULT_VOCAB_PADDING_SIZE

std::string divisors(std::uint32_t heads, std::uint32_t kv_heads) {
  std::string out;
  for (std::uint32_t tp = 1; tp <= heads && tp <= 64; ++tp) {
    if (heads % tp != 0 || (kv_heads % tp != 0 && tp % kv_heads != 0)) continue;
    out += (out.empty() ? "" : ", ") + std::to_string(tp);
  }
  return out;
}

// How an error names what cuts attention.
std::string attention_flags(const ParallelLayout& layout) {
  if (layout.dp_size == 1) return fmt::format("--tp {}", layout.tp_size);
  return fmt::format("--tp {} with --dp-size {} (attention over {} ranks)", layout.tp_size, layout.dp_size,
                     layout.attn_tp_size());
}

void check_layout(const ModelConfig& model, const ParallelLayout& layout) {
  const std::uint32_t heads = model.num_attention_heads;
  const std::uint32_t kv_heads = model.num_key_value_heads;
  if (layout.dp_size == 0 || layout.ep_size == 0 || layout.tp_size % layout.dp_size != 0)
    throw_user_error("--dp-size {}: must divide --tp {} with --enable-dp-attention", layout.dp_size,
                     layout.tp_size);
  if (layout.tp_size % layout.ep_size != 0)
    throw_user_error("--ep-size {}: must divide --tp {}", layout.ep_size, layout.tp_size);
  const std::uint32_t attn = layout.attn_tp_size();
  if (attn == 0 || heads % attn != 0) {
    throw_user_error("{} does not divide the {} attention heads of {}; use {}", attention_flags(layout),
                     heads, model.name, divisors(heads, kv_heads));
  }
  if (kv_heads % attn != 0 && attn % kv_heads != 0) {
    throw_user_error("{}: the {} KV heads of {} can be neither split nor replicated evenly; use {}",
                     attention_flags(layout), kv_heads, model.name, divisors(heads, kv_heads));
  }
  if (model.fused_qkv_ranks % attn != 0)
    throw_user_error(
        "{}: the projections of {} are interleaved for {} ranks, and attention must be cut over a divisor of "
        "them; use --dp-size {} with --enable-dp-attention",
        attention_flags(layout), model.name, model.fused_qkv_ranks,
        std::max(1U, layout.tp_size / model.fused_qkv_ranks));
  for (const AttentionKind& kind : model.attention) {
    const AttentionHeads own = model.heads_of(kind);
    if (own.num_heads % attn != 0 || (own.num_kv_heads % attn != 0 && attn % own.num_kv_heads != 0))
      throw_user_error("{}: can neither split nor replicate the {} and {} heads of some layers of {} evenly",
                       attention_flags(layout), own.num_heads, own.num_kv_heads, model.name);
  }
  const MoeConfig& moe = model.moe;
  const auto check_width = [&](std::uint32_t parts, const char* what, std::uint32_t width) {
    if (width % parts == 0) return;
    throw_user_error("--tp {} does not divide the {} {} of {}; use a divisor of it", parts, what, width,
                     model.name);
  };
  // Keys of short convolutions and of Mamba 2 follow the values.
  const bool by_values =
      model.linear.kind == LinearKind::kShortConv || model.linear.kind == LinearKind::kMamba2;
  if (model.linear.norm_groups % attn != 0)
    throw_user_error(
        "--tp {} does not divide the {} groups of norms of the linear layers of {}; use a divisor", attn,
        model.linear.norm_groups, model.name);
  if (const std::uint32_t linear = by_values ? model.linear.num_value_heads : model.linear.num_key_heads;
      linear % attn != 0) {
    throw_user_error(
        "--tp {} does not divide the {} key heads of the linear layers of {}; use a divisor of it", attn,
        linear, model.name);
  }
  if (model.num_dense_layers() > 0)
    check_width(layout.dense_mlp(0).size, "MLP width", model.intermediate_size);
  if (moe.num_layers > 0) {
    check_width(layout.moe_tp_size(), "expert width", moe.intermediate_size);
    if (moe.num_shared_experts > 0)
      check_width(layout.shared_experts(0).size, "shared experts' width",
                  moe.num_shared_experts * moe.intermediate_size);
  }
  if (moe.num_layers == 0) {
    if (layout.ep_size > 1)
      throw_user_error("--ep-size {}: {} has no experts; leave it out", layout.ep_size, model.name);
    if (layout.a2a())
      throw_user_error("--moe-a2a-backend deepep: {} has no experts; leave it out", model.name);
  } else if ((moe.num_experts + layout.redundant_experts) % layout.ep_size != 0) {
    throw_user_error("--ep-size {}: does not divide the {} experts of {}", layout.ep_size,
                     moe.num_experts + layout.redundant_experts, model.name);
  }
}

// A rank's entries where the vocabulary is cut in `parts`. SGLang pads to 64 entries, and to 64 on every rank
// only where that does not divide.
std::uint32_t vocab_part(const ModelConfig& model, std::uint32_t parts) {
  const auto padded = [&](std::uint32_t unit) { return (model.vocab_size + unit - 1) / unit * unit; };
  const bool divides = padded(kVocabPadding) % parts == 0;
  return padded(divides ? kVocabPadding : kVocabPadding * parts) / parts;
}

}  // namespace

RankHeads rank_heads(const AttentionHeads& heads, Split attention) {
  const auto part = [&](std::uint32_t all) {
    const std::uint32_t count = std::max(1U, all / attention.size);
    const std::uint32_t ranks_of_one = std::max(1U, attention.size / all);
    const std::uint32_t first = attention.rank / ranks_of_one * count;
    return HeadRange{first, first + count - 1};
  };
  return {part(heads.num_heads), part(heads.num_kv_heads)};
}

Shard make_shard(const ModelConfig& model, const ParallelLayout& layout, std::uint32_t rank) {
  check_layout(model, layout);
  Shard shard;
  shard.layout = layout;
  shard.ep_size = layout.ep_size;
  if (layout.ep_size == 1 && !layout.a2a())
    shard.num_fused_shared_experts = model.moe.num_fused_shared_experts;
  shard.tp_size = layout.tp_size;
  shard.tp_rank = rank;
  shard.attention = layout.attention(rank);
  shard.dense_mlp = layout.dense_mlp(rank);
  shard.shared_experts = layout.shared_experts(rank);
  shard.experts = layout.experts(rank);
  shard.expert_width = layout.expert_width(rank);
  // A head that is the embedding is cut like it.
  const bool own_head = layout.dp_lm_head || model.tie_word_embeddings;
  shard.head = own_head ? shard.attention : Split{layout.tp_size, rank};
  const RankHeads heads = rank_heads(
      {.num_heads = model.num_attention_heads, .num_kv_heads = model.num_key_value_heads}, shard.attention);
  shard.q_heads = heads.q;
  shard.kv_heads = heads.kv;
  shard.vocab = vocab_part(model, shard.head.size);
  shard.embedding_vocab = vocab_part(model, shard.attention.size);
  return shard;
}

Shard make_shard(const ModelConfig& model, std::uint32_t tp_size, std::uint32_t tp_rank,
                 std::uint32_t ep_size) {
  ParallelLayout layout;
  layout.tp_size = tp_size;
  layout.ep_size = ep_size;
  return make_shard(model, layout, tp_rank);
}

namespace {

constexpr const char* kPartition = "SGLANG_PP_LAYER_PARTITION";

std::vector<LayerRange> partitioned(std::uint32_t num_layers, std::uint32_t pp_size,
                                    const std::string& partition) {
  std::vector<LayerRange> stages;
  std::uint32_t first = 0;
  for (const std::string& part : split_list(partition)) {
    const auto count = static_cast<std::uint32_t>(parse_count(kPartition, part, 1, num_layers));
    stages.push_back({first, count});
    first += count;
  }
  if (stages.size() != pp_size)
    throw_user_error("{} {}: names {} stages, --pp-size is {}", kPartition, partition, stages.size(),
                     pp_size);
  if (first != num_layers)
    throw_user_error("{} {}: adds up to {} layers, the model has {}", kPartition, partition, first,
                     num_layers);
  return stages;
}

}  // namespace

std::vector<LayerRange> pipeline_layers(std::uint32_t num_layers, std::uint32_t pp_size,
                                        const std::string& partition) {
  if (pp_size > num_layers)
    throw_user_error("--pp-size {}: the model has {} layers, each stage needs one", pp_size, num_layers);
  if (pp_size > 1 && !partition.empty()) return partitioned(num_layers, pp_size, partition);
  std::vector<LayerRange> stages;
  const std::uint32_t with_one_more = num_layers % pp_size;
  std::uint32_t first = 0;
  for (std::uint32_t stage = 0; stage < pp_size; ++stage) {
    const std::uint32_t count = num_layers / pp_size + (stage >= pp_size - with_one_more ? 1 : 0);
    stages.push_back({first, count});
    first += count;
  }
  return stages;
}

void check_pipeline(const ModelConfig& model) {
  if (model.is_hybrid_linear())
    throw_user_error(
        "--pp-size: stages of {}, whose gated delta-net layers keep states, are not simulated; use --tp",
        model.name);
  if (model.is_compressed())
    throw_user_error("--pp-size: stages of {}, which hand several streams on, are not simulated; use --tp",
                     model.name);
  // InternVL's text model has an architecture of its own; the class that serves it makes no stages of it.
  const std::string& served = model.vision.present() ? model.vision.architecture : model.architecture;
  if (served != model.architecture || !model.facts.pipeline)
    throw_user_error("--pp-size: SGLang's {} has no pipeline stages; use --tp", served);
  if (model.tie_word_embeddings && model.facts.tied_head_is_embedding)
    throw_user_error(
        "--pp-size: {} ties its head to the embedding, and the last stage of SGLang's {} has no embedding; "
        "use --tp",
        model.name, model.architecture);
}

void check_deepstack(const ModelConfig& model, const std::vector<LayerRange>& stages) {
  if (stages.size() > 1 && model.vision.served && stages.front().count < model.vision.deepstack)
    throw_user_error(
        "--pp-size {}: the first stage has {} layers of {}, and image features go into its first {}; use "
        "fewer stages",
        stages.size(), stages.front().count, model.name, model.vision.deepstack);
}

ModelConfig stage_model(const ModelConfig& model, LayerRange layers) {
  ModelConfig stage = model;
  stage.first_layer = model.first_layer + layers.first;
  stage.num_layers = layers.count;
  stage.layers.assign(model.layers.begin() + layers.first,
                      model.layers.begin() + layers.first + layers.count);
  stage.attention.clear();
  stage.moe.num_layers = stage.indexer.num_layers = stage.linear.num_layers = 0;
  std::vector<std::uint32_t> kind_in_stage(model.attention.size(), LayerConfig::kNoRope);
  std::uint32_t kv_layer = 0;
  for (LayerConfig& layer : stage.layers) {
    if (layer.moe) ++stage.moe.num_layers;
    if (layer.indexer) layer.index_layer = stage.indexer.num_layers++;
    if (layer.linear) {
      ++stage.linear.num_layers;
      continue;
    }
    layer.kv_layer = kv_layer++;
    std::uint32_t& kind = kind_in_stage[layer.attention];
    if (kind == LayerConfig::kNoRope) {
      kind = static_cast<std::uint32_t>(stage.attention.size());
      stage.attention.push_back(model.attention[layer.attention]);
      stage.attention.back().num_layers = 0;
    }
    layer.attention = kind;
    ++stage.attention[kind].num_layers;
  }
  return stage;
}

Shard stage_shard(const ModelConfig& stage_model, const ParallelLayout& layout, std::uint32_t tp_rank,
                  std::uint32_t pp_rank, std::uint32_t pp_size) {
  Shard shard = make_shard(stage_model, layout, tp_rank);
  shard.stage.rank = pp_rank;
  shard.stage.size = pp_size;
  shard.stage.head_on_every_stage = stage_model.facts.head_on_every_stage;
  return shard;
}

}  // namespace tpsim::rank
