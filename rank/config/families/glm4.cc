// GLM-4 and GLM-Z1 of April 2025, dense: norms before and behind attention and MLP, neighbours of the first
// half of each head rotated.
// ChatGLM (GLM-4-9B-Chat) has norms before them alone, and names of its own.
#include <array>
#include <string_view>
#include <utility>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_chatglm(const ConfigReader& config, ModelConfig& model) {
  const auto must_be = [&](const char* key, bool value) {
    if (config.flag(key, value) != value)
      throw_user_error("{}: key \"{}\" must be {}, no other form of ChatGLM is simulated", config.where(),
                       key, value);
  };
  for (const char* key : {"rmsnorm", "multi_query_attention", "original_rope", "post_layer_norm"})
    must_be(key, true);
  for (const char* key : {"apply_residual_connection_post_layernorm", "add_bias_linear"}) must_be(key, false);
  model.qkv_bias = config.flag("add_qkv_bias", false);
  model.names.fused_projections = true;
  model.names.renamed = {{"model.embed_tokens", "transformer.embedding.word_embeddings"},
                         {"model.norm", "transformer.encoder.final_layernorm"},
                         {"model.layers.", "transformer.encoder.layers."},
                         {"lm_head", "transformer.output_layer"},
                         {"self_attn.qkv_proj", "self_attention.query_key_value"},
                         {"self_attn.o_proj", "self_attention.dense"},
                         {"mlp.gate_up_proj", "mlp.dense_h_to_4h"},
                         {"mlp.down_proj", "mlp.dense_4h_to_h"}};
  read_layers(config, model);
  read_rope(config, model,
            {.theta = 10000 * config.real("rope_ratio", 1, 1e-3, 1e6), .partial_rotary_factor = 0.5});
  model.ropes.front().interleaved = true;
}

void read_glm4(const ConfigReader& config, ModelConfig& model) {
  if (model.architecture == "ChatGLMModel") {
    read_chatglm(config, model);
    return;
  }
  model.rms_norm_eps = config.real("rms_norm_eps", 1.5625e-7, 0, 1);
  model.qkv_bias = config.flag("attention_bias", true);
  model.post_norms = true;
  model.names.fused_gate_up = true;
  model.names.renamed = {{".post_attention_layernorm", ".post_self_attn_layernorm"},
                         {".pre_feedforward_layernorm", ".post_attention_layernorm"},
                         {".post_feedforward_layernorm", ".post_mlp_layernorm"}};
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model, {.partial_rotary_factor = 0.5});
  model.ropes.front().interleaved = true;
}

constexpr std::array<Architecture, 2> kGlm4Architectures = {{
    {.name = "Glm4ForCausalLM", .facts = {.pipeline = true}},
    {.name = "ChatGLMModel", .facts = {.remote_code = true}},
}};
constexpr std::pair<const char*, const char*> kGlm4Keys[] = {
    {"num_layers", "num_hidden_layers"},
    {"ffn_hidden_size", "intermediate_size"},
    {"padded_vocab_size", "vocab_size"},
    {"seq_length", "max_position_embeddings"},
    {"layernorm_epsilon", "rms_norm_eps"},
    {"kv_channels", "head_dim"},
    {"multi_query_group_num", "num_key_value_heads"}};

}  // namespace

extern const ModelFamily kGlm4Family;
const ModelFamily kGlm4Family = {
    .architectures = kGlm4Architectures, .read = read_glm4, .other_keys = kGlm4Keys};

}  // namespace tpsim::rank
