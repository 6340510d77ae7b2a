// dual_chunk_attention_config, as SGLang 0.5.12 reads it (dual_chunk_flashattention_backend.py,
// rotary_embedding/factory.py).
#include "rank/config/config_parts.h"

namespace tpsim::rank {
namespace {

constexpr const char* kKey = "dual_chunk_attention_config";

}  // namespace

void read_dual_chunk(const ConfigReader& config, ModelConfig& model) {
  if (!config.has(kKey)) return;
  const std::string where = config.where() + ": " + kKey;
  if (!config.json()[kKey].is_object()) throw_user_error("{} must be an object", where);
  if (!model.facts.dual_chunk) {
    throw_user_error(
        "{}: SGLang's {} knows no dual chunk attention (Qwen2, Qwen2-MoE and Qwen3-MoE do); leave it out",
        where, model.architecture);
  }
  const ConfigReader chunks(config.json()[kKey], where);
  constexpr std::uint32_t kMost = 1U << 28;
  if (chunks.flag("sparse_attention_enabled", chunks.has("sparse_attention_config"))) {
    throw_user_error(
        "{}: its sparse_attention_config (vertical and slash lines of attention beyond "
        "sparse_attention_threshold "
        "tokens) is not simulated; set \"sparse_attention_enabled\" to false for the dense form",
        where);
  }
  // rotary_embedding/factory.py passes on what is given, and its class has no defaults.
  DualChunkConfig& out = model.dual_chunk;
  out.chunk_size = chunks.number("chunk_size", 2, kMost);
  out.local_size = chunks.number("local_size", 0, kMost);
  if (out.local_size >= out.chunk_size)
    throw_user_error("{}: local_size {} must be less than chunk_size {}", where, out.local_size,
                     out.chunk_size);
  out.dense_said = chunks.has("sparse_attention_enabled");
  out.original_max_position_embeddings = chunks.number_or("original_max_position_embeddings", 0, 0);
  if (model.ropes.front().type != RopeType::kDefault)
    throw_user_error("{}: rope_scaling has no effect beside it in SGLang; leave one of them out", where);
  for (const LayerConfig& layer : model.layers) {
    if (layer.sliding_window > 0)
      throw_user_error("{}: layers with a sliding window cannot have it; set use_sliding_window to false",
                       where);
  }
}

}  // namespace tpsim::rank
