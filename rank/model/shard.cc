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

}  // namespace tpsim::rank
