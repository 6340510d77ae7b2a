// InternLM 2, whose queries, keys and values are one tensor, and 3. Llama in all else.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_internlm(const ConfigReader& config, ModelConfig& model) {
  const bool third = model.architecture == "InternLM3ForCausalLM";
  const bool bias = config.flag("bias", false);
  model.o_bias = config.flag("attention_bias", bias);
  model.qkv_bias = config.flag("qkv_bias", model.o_bias);
  model.mlp_bias = third && config.flag("mlp_bias", bias);
  model.activation = read_activation(config, "hidden_act", "silu");
  if (!third) {
    if (bias) throw_user_error("{}: key \"bias\" must be false, as in SGLang's class", config.where());
    model.names.grouped_qkv = true;
    model.names.renamed = {{"self_attn.wqkv", "attention.wqkv"},
                           {"self_attn.o_proj", "attention.wo"},
                           {"mlp.gate_proj", "feed_forward.w1"},
                           {"mlp.up_proj", "feed_forward.w3"},
                           {"mlp.down_proj", "feed_forward.w2"},
                           {"input_layernorm", "attention_norm"},
                           {"post_attention_layernorm", "ffn_norm"},
                           {"embed_tokens", "tok_embeddings"},
                           {"lm_head", "output"}};
  }
  read_layers(config, model);
  read_rope(config, model);
}

constexpr std::array<Architecture, 2> kInternlmArchitectures = {{
    {.name = "InternLM2ForCausalLM", .facts = {.remote_code = true}},
    {.name = "InternLM3ForCausalLM",
     .facts = {.pipeline = true,
               .head_on_every_stage = true,
               .tied_head_is_embedding = true,
               .remote_code = true}},
}};

}  // namespace

extern const ModelFamily kInternlmFamily;
const ModelFamily kInternlmFamily = {kInternlmArchitectures, read_internlm};

}  // namespace tpsim::rank
