// StableLM 2: norms that take the mean off and have biases, a quarter of each head rotated. StarCoder 2: the
// same norms, biases everywhere, an MLP without a gate, and a window in every layer.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_stablelm(const ConfigReader& config, ModelConfig& model) {
  model.layer_norms = model.norm_bias = true;
  if (model.architecture == "Starcoder2ForCausalLM") {
    model.rms_norm_eps = config.real("norm_epsilon", 1e-5, 0, 1);
    model.qkv_bias = model.o_bias = model.mlp_bias = config.flag("use_bias", true);
    model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
    model.activation = read_activation(config, "hidden_act", "gelu_pytorch_tanh");
    model.ungated_mlp = true;
    model.names.renamed = {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}};
    read_layers(config, model, [](std::uint32_t) { return true; });
    read_rope(config, model);
    return;
  }
  for (const char* key : {"qk_layernorm", "use_parallel_residual"})
    if (config.flag(key, false))
      throw_user_error("{}: key \"{}\" is true, which SGLang's class does not know", config.where(), key);
  model.rms_norm_eps = config.real("layer_norm_eps", 1e-5, 0, 1);
  model.qkv_bias = config.flag("use_qkv_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model, {.partial_rotary_factor = 0.25});
}

constexpr std::array<Architecture, 2> kStablelmArchitectures = {{
    {.name = "StableLmForCausalLM"},
    {.name = "Starcoder2ForCausalLM"},
}};

}  // namespace

extern const ModelFamily kStablelmFamily;
const ModelFamily kStablelmFamily = {kStablelmArchitectures, read_stablelm};

}  // namespace tpsim::rank
