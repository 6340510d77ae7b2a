#include "rank/model/shard.h"

#include <string>

#include "proto/error.h"

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

Shard make_shard(const ModelConfig& model, std::uint32_t tp_size, std::uint32_t tp_rank) {
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
  if (model.moe.num_layers > 0) check_width("expert width", model.moe.intermediate_size);
  Shard shard;
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

std::vector<LinearLayer> linear_layers(const ModelConfig& model, const Shard& shard) {
  const std::uint64_t hidden = model.hidden_size;
  const std::uint64_t q = std::uint64_t{shard.q_heads.count()} * model.head_dim;
  const std::uint64_t kv = std::uint64_t{shard.kv_heads.count()} * model.head_dim;
  std::vector<LinearLayer> layers = {
      {"qkv_proj", hidden, q + 2 * kv, Sharding::kColumn, model.num_layers},
      {"o_proj", q, hidden, Sharding::kRow, model.num_layers},
  };
  if (model.moe.num_layers > 0) {
    layers.push_back({"gate", hidden, model.moe.num_experts, Sharding::kReplicated, model.moe.num_layers});
  }
  if (const std::uint32_t dense = model.num_layers - model.moe.num_layers; dense > 0) {
    const std::uint64_t width = model.intermediate_size / shard.tp_size;
    layers.push_back({"gate_up_proj", hidden, 2 * width, Sharding::kColumn, dense});
    layers.push_back({"down_proj", width, hidden, Sharding::kRow, dense});
  }
  layers.push_back({"lm_head", hidden, shard.vocab, Sharding::kVocabulary, 1});
  return layers;
}

std::uint64_t weight_bytes(const ModelConfig& model, const Shard& shard) {
  std::uint64_t parameters = 0;
  for (const LinearLayer& layer : linear_layers(model, shard)) {
    if (layer.name == "lm_head" && model.tie_word_embeddings) continue;
    parameters += layer.k * layer.n * layer.count;
    if (model.qkv_bias && layer.name == "qkv_proj") parameters += layer.n * layer.count;
  }
  const MoeConfig& moe = model.moe;
  parameters += std::uint64_t{moe.num_experts} * 3 * model.hidden_size *
                (moe.intermediate_size / shard.tp_size) * moe.num_layers;
  parameters += std::uint64_t{shard.vocab} * model.hidden_size;                 // embedding
  parameters += (2 * std::uint64_t{model.num_layers} + 1) * model.hidden_size;  // norms
  if (model.qk_norm) parameters += 2 * std::uint64_t{model.num_layers} * model.head_dim;
  return parameters * model.weight_bytes;
}

std::uint64_t kv_bytes_per_token(const ModelConfig& model, const Shard& shard,
                                 std::uint32_t kv_element_bytes) {
  return std::uint64_t{2} * shard.kv_heads.count() * model.head_dim * model.num_layers * kv_element_bytes;
}

}  // namespace tpsim::rank
