// Gemma 4 (text): windows in most layers, and in the others wider heads, fewer keys, and values that are the
// keys before they are turned; in some sizes experts beside the dense MLP, which is priced as shared ones.
#include <array>
#include <cmath>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_gemma4_experts(const ConfigReader& config, ModelConfig& model) {
  if (!config.flag("enable_moe_block", false)) return;
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("top_k_experts", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  if (model.intermediate_size % moe.intermediate_size != 0)
    throw_user_error("{}: intermediate_size {} is not a multiple of moe_intermediate_size {}", config.where(),
                     model.intermediate_size, moe.intermediate_size);
  moe.num_shared_experts = model.intermediate_size / moe.intermediate_size;
  moe.normalize_weights = true;
  moe.gemma_router = true;
  model.names.renamed = {
      {".mlp.shared_experts.", ".mlp."}, {".mlp.gate.", ".router.proj."}, {".mlp.experts.", ".experts."}};
  for (LayerConfig& layer : model.layers) layer.moe = true;
}

// Of a wide head the first pairs turn ("proportional").
void read_gemma4_rope(const ConfigReader& config, ModelConfig& model, std::uint32_t wide_head) {
  Json ropes = {{"full_attention",
                 {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}},
                {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  if (config.has("rope_parameters")) ropes.merge_patch(config.json()["rope_parameters"]);
  const Json json = {{"rope_parameters", ropes}};
  read_rope(ConfigReader(json, config.where()), model, {.partial_rotary_factor = 1.0});
  model.ropes.front().head_dim = wide_head;
}

void read_gemma4(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.qk_norm = model.post_norms = true;
  model.value_norm = model.layer_scalars = true;
  model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  model.activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  model.attention_scale = 1;
  model.final_logit_cap = config.real("final_logit_softcapping", 0, 0, 1e6);
  read_layers(config, model,
              [&](std::uint32_t layer) { return (layer + 1) % 6 != 0 && layer + 1 != model.num_layers; });
  const bool shared = config.flag("attention_k_eq_v", false);
  const AttentionHeads wide = {
      .num_heads = model.num_attention_heads,
      .num_kv_heads = shared ? config.number_or("num_global_key_value_heads", model.num_key_value_heads)
                             : model.num_key_value_heads,
      .head_dim = config.number_or("global_head_dim", 512),
      .keys_are_values = shared};
  if (wide.head_dim % 2 != 0 || wide.head_dim > 1024 || wide.num_heads % wide.num_kv_heads != 0)
    throw_user_error(
        "{}: global_head_dim {} must be even and at most 1024, and num_global_key_value_heads {} "
        "divide num_attention_heads {}",
        config.where(), wide.head_dim, wide.num_kv_heads, wide.num_heads);
  for (LayerConfig& layer : model.layers) {
    if (layer.sliding_window == 0) layer.heads = wide;
    if (layer.sliding_window > 1) model.swa_pool_window = layer.sliding_window - 1;
  }
  read_gemma4_rope(config, model, wide.head_dim);
  read_gemma4_experts(config, model);
}

constexpr ArchitectureFacts kGemma4Compiled = {.torch_router = true};
constexpr ArchitectureFacts kGemma4Eager = {.torch_router = true, .eager_prefill = true};
constexpr std::array<Architecture, 3> kGemma4Architectures = {{
    {.name = "Gemma4ForCausalLM", .facts = kGemma4Compiled},
    {.name = "Gemma4ForConditionalGeneration", .facts = kGemma4Eager},
    {.name = "Gemma4UnifiedForConditionalGeneration", .facts = kGemma4Eager},
}};

}  // namespace

extern const ModelFamily kGemma4Family;
const ModelFamily kGemma4Family = {kGemma4Architectures, read_gemma4};

}  // namespace tpsim::rank
