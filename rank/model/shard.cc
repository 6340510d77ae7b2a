#include "rank/model/shard.h"

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

}  // namespace

Shard make_shard(const ModelConfig& model, std::uint32_t tp_size, std::uint32_t tp_rank,
                 std::uint32_t ep_size) {
  const std::uint32_t heads = model.num_attention_heads;
  const std::uint32_t kv_heads = model.num_key_value_heads;
  if (tp_size == 0 || heads % tp_size != 0) {
    throw_user_error("--tp {} does not divide the {} attention heads of {}; use {}", tp_size, heads,
                     model.name, divisors(heads, kv_heads));
  }
  if (kv_heads % tp_size != 0 && tp_size % kv_heads != 0) {
    throw_user_error("--tp {}: the {} KV heads of {} can be neither split nor replicated evenly; use {}",
                     tp_size, kv_heads, model.name, divisors(heads, kv_heads));
  }
  const auto check_width = [&](const char* what, std::uint32_t width) {
    if (width % tp_size == 0) return;
    throw_user_error("--tp {} does not divide the {} {} of {}; use a divisor of it", tp_size, what, width,
                     model.name);
  };
  if (model.moe.num_layers < model.num_layers) check_width("MLP width", model.intermediate_size);
  if (model.moe.num_layers > 0) {
    if (ep_size == 1) check_width("expert width", model.moe.intermediate_size);
    if (model.moe.num_shared_experts > 0)
      check_width("shared experts' width", model.moe.num_shared_experts * model.moe.intermediate_size);
  }
  if (ep_size > 1 && model.moe.num_layers == 0)
    throw_user_error("--ep-size {}: {} has no experts; leave it out", ep_size, model.name);
  if (ep_size > 1 && model.moe.num_experts % ep_size != 0) {
    throw_user_error("--ep-size {}: does not divide the {} experts of {}", ep_size, model.moe.num_experts,
                     model.name);
  }
  Shard shard;
  shard.ep_size = ep_size;
  shard.tp_size = tp_size;
  shard.tp_rank = tp_rank;
  const std::uint32_t q = heads / tp_size;
  shard.q_heads = {tp_rank * q, tp_rank * q + q - 1};
  if (kv_heads >= tp_size) {
    const std::uint32_t kv = kv_heads / tp_size;
    shard.kv_heads = {tp_rank * kv, tp_rank * kv + kv - 1};
  } else {
    const std::uint32_t head = tp_rank / (tp_size / kv_heads);
    shard.kv_heads = {head, head};
  }
  // SGLang pads to 64 entries, and to 64 on every rank only where that does not divide.
  const auto padded = [&](std::uint32_t unit) { return (model.vocab_size + unit - 1) / unit * unit; };
  const bool divides = padded(kVocabPadding) % tp_size == 0;
  shard.vocab = padded(divides ? kVocabPadding : kVocabPadding * tp_size) / tp_size;
  return shard;
}

namespace {

// MLA: the latent projections are on every rank, what comes out of them is cut by heads. Decode absorbs kv_b
// into queries and outputs; the weights read are the same.
void add_mla_layers(const ModelConfig& model, const Shard& shard, std::vector<LinearLayer>& layers) {
  const MlaConfig& mla = model.mla;
  const std::uint64_t heads = shard.q_heads.count();
  const std::uint64_t q = heads * model.head_dim;
  if (mla.q_lora_rank > 0) {
    layers.push_back(
        {"q_a_proj", model.hidden_size, mla.q_lora_rank, Sharding::kReplicated, model.num_layers});
    layers.push_back({"q_b_proj", mla.q_lora_rank, q, Sharding::kColumn, model.num_layers});
  } else {
    layers.push_back({"q_proj", model.hidden_size, q, Sharding::kColumn, model.num_layers});
  }
  layers.push_back({"kv_a_proj_with_mqa", model.hidden_size,
                    std::uint64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim, Sharding::kReplicated,
                    model.num_layers});
  layers.push_back({"kv_b_proj", mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim),
                    Sharding::kColumn, model.num_layers});
  layers.push_back({"o_proj", heads * mla.v_head_dim, model.hidden_size, Sharding::kRow, model.num_layers});
}

void add_gated(const std::string& prefix, std::uint64_t hidden, std::uint64_t width, std::uint32_t count,
               std::vector<LinearLayer>& layers) {
  layers.push_back({prefix + "gate_up_proj", hidden, 2 * width, Sharding::kColumn, count});
  layers.push_back({prefix + "down_proj", width, hidden, Sharding::kRow, count});
}

}  // namespace

std::vector<LinearLayer> linear_layers(const ModelConfig& model, const Shard& shard) {
  const std::uint64_t hidden = model.hidden_size;
  const std::uint64_t q = std::uint64_t{shard.q_heads.count()} * model.head_dim;
  const std::uint64_t kv = std::uint64_t{shard.kv_heads.count()} * model.head_dim;
  std::vector<LinearLayer> layers;
  if (model.is_mla()) {
    add_mla_layers(model, shard, layers);
  } else {
    layers.push_back({"qkv_proj", hidden, q + 2 * kv, Sharding::kColumn, model.num_layers});
    layers.push_back({"o_proj", q, hidden, Sharding::kRow, model.num_layers});
  }
  if (model.moe.num_layers > 0) {
    layers.push_back({"gate", hidden, model.moe.num_experts, Sharding::kReplicated, model.moe.num_layers});
    const std::uint64_t shared = std::uint64_t{model.moe.num_shared_experts} * model.moe.intermediate_size;
    if (shared > 0)
      add_gated("shared_experts.", hidden, shared / shard.tp_size, model.moe.num_layers, layers);
  }
  if (const std::uint32_t dense = model.num_layers - model.moe.num_layers; dense > 0)
    add_gated("", hidden, model.intermediate_size / shard.tp_size, dense, layers);
  layers.push_back({"lm_head", hidden, shard.vocab, Sharding::kVocabulary, 1});
  return layers;
}

std::uint64_t weight_bytes(const ModelConfig& model, const Shard& shard) {
  const std::uint64_t hidden = model.hidden_size;
  const std::uint64_t layers = model.num_layers;
  std::uint64_t parameters = 0;
  for (const LinearLayer& layer : linear_layers(model, shard)) {
    if (layer.name == "lm_head" && model.tie_word_embeddings) continue;
    parameters += layer.k * layer.n * layer.count;
    if (model.qkv_bias && layer.name == "qkv_proj") parameters += layer.n * layer.count;
    if (model.mlp_bias && (layer.name == "gate_up_proj" || layer.name == "down_proj"))
      parameters += layer.n * layer.count;
  }
  if (model.o_bias) parameters += hidden * layers;
  const MoeConfig& moe = model.moe;
  const bool whole = shard.ep_size > 1;
  const std::uint64_t width = whole ? moe.intermediate_size : moe.intermediate_size / shard.tp_size;
  std::uint64_t expert = 3 * hidden * width;
  if (moe.expert_bias) expert += 2 * width + hidden;
  parameters += moe.num_experts / shard.ep_size * expert * moe.num_layers;
  if (moe.router_bias || moe.scoring == ExpertScoring::kSigmoid)
    parameters += std::uint64_t{moe.num_experts} * moe.num_layers;
  parameters += std::uint64_t{shard.vocab} * hidden;                 // embedding
  parameters += ((model.post_norms ? 4 : 2) * layers + 1) * hidden;  // norms
  if (model.qk_norm) parameters += 2 * layers * model.head_dim;
  if (model.is_mla()) parameters += (std::uint64_t{model.mla.q_lora_rank} + model.mla.kv_lora_rank) * layers;
  if (model.attention_sinks) parameters += shard.q_heads.count() * layers;
  return parameters * model.weight_bytes;
}

std::uint64_t kv_bytes_per_token(const ModelConfig& model, const Shard& shard,
                                 std::uint32_t kv_element_bytes) {
  // MLA keeps one latent and one rotated key for all heads, on every rank.
  if (model.is_mla())
    return (std::uint64_t{model.mla.kv_lora_rank} + model.mla.qk_rope_head_dim) * model.num_layers *
           kv_element_bytes;
  return std::uint64_t{2} * shard.kv_heads.count() * model.head_dim * model.num_layers * kv_element_bytes;
}

}  // namespace tpsim::rank
