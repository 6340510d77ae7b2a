#include "rank/config/shard.h"

#include <fmt/format.h>

#include <string>

#include "proto/base/error.h"

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
  const MoeConfig& moe = model.moe;
  const auto check_width = [&](std::uint32_t parts, const char* what, std::uint32_t width) {
    if (width % parts == 0) return;
    throw_user_error("--tp {} does not divide the {} {} of {}; use a divisor of it", parts, what, width,
                     model.name);
  };
  if (const std::uint32_t linear = model.linear.num_key_heads; linear % attn != 0) {
    throw_user_error(
        "--tp {} does not divide the {} key heads of the gated delta-net layers of {}; use a divisor of it",
        attn, linear, model.name);
  }
  if (moe.num_layers < model.num_layers)
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
  } else if (moe.num_experts % layout.ep_size != 0) {
    throw_user_error("--ep-size {}: does not divide the {} experts of {}", layout.ep_size, moe.num_experts,
                     model.name);
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
  const std::uint32_t attn = shard.attention.size;
  const std::uint32_t kv_heads = model.num_key_value_heads;
  const std::uint32_t q = model.num_attention_heads / attn;
  shard.q_heads = {shard.attention.rank * q, shard.attention.rank * q + q - 1};
  if (kv_heads >= attn) {
    const std::uint32_t kv = kv_heads / attn;
    shard.kv_heads = {shard.attention.rank * kv, shard.attention.rank * kv + kv - 1};
  } else {
    const std::uint32_t head = shard.attention.rank / (attn / kv_heads);
    shard.kv_heads = {head, head};
  }
  shard.vocab = vocab_part(model, shard.head.size);
  shard.embedding_vocab = vocab_part(model, attn);
  return shard;
}

Shard make_shard(const ModelConfig& model, std::uint32_t tp_size, std::uint32_t tp_rank,
                 std::uint32_t ep_size) {
  ParallelLayout layout;
  layout.tp_size = tp_size;
  layout.ep_size = ep_size;
  return make_shard(model, layout, tp_rank);
}

}  // namespace tpsim::rank
