// EXAONE of LG. 3 and 3.5: Llama under other names. 4: norms behind attention and MLP alone, queries and keys
// normed; its larger size has windows in three of four layers, and no rotation in the others. K-EXAONE: the
// same attention, norms before it, and experts chosen by sigmoids.
#include <array>
#include <string>
#include <utility>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// "LLLG", or a number: the last of so many layers sees everything.
std::uint32_t read_pattern(const ConfigReader& config) {
  constexpr const char* kKey = "sliding_window_pattern";
  if (!config.has(kKey) || !config.json()[kKey].is_string()) return config.number_or(kKey, 4);
  const std::string pattern = config.text(kKey, "");
  if (pattern.empty() || pattern.find_first_not_of('L') != pattern.size() - 1 || pattern.back() != 'G')
    throw_user_error("{}: key \"{}\" must be a number or L, L, … and one G", config.where(), kKey);
  return static_cast<std::uint32_t>(pattern.size());
}

void read_exaone(const ConfigReader& config, ModelConfig& model) {
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  if (model.architecture == "ExaoneForCausalLM") {
    model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
    model.mlp_bias = config.flag("mlp_bias", false);
    model.names.renamed = {{"model.embed_tokens", "transformer.wte"},
                           {"model.norm", "transformer.ln_f"},
                           {"model.layers.", "transformer.h."},
                           {"self_attn.o_proj", "self_attn.out_proj"},
                           {".self_attn.", ".attn.attention."},
                           {"input_layernorm", "ln_1"},
                           {"post_attention_layernorm", "ln_2"},
                           {"mlp.gate_proj", "mlp.c_fc_0"},
                           {"mlp.up_proj", "mlp.c_fc_1"},
                           {"mlp.down_proj", "mlp.c_proj"}};
    read_layers(config, model);
    read_rope(config, model, {.theta = 5e5});
    return;
  }
  const bool experts = model.facts.data_parallel_attention;
  model.pre_norms = experts;
  model.post_norms = !experts;
  model.qk_norm = true;
  const std::uint32_t pattern = config.has("sliding_window") ? read_pattern(config) : 0;
  model.facts.no_flashinfer = pattern > 0;
  read_layers(config, model, [&](std::uint32_t layer) { return (layer + 1) % pattern != 0; });
  for (LayerConfig& layer : model.layers)
    if (pattern > 0 && layer.sliding_window == 0) layer.rope = LayerConfig::kNoRope;
  read_rope(config, model);
  if (!experts) return;
  read_grouped_experts(config, model, {.normalize_weights = true});
  model.names.renamed = {{"mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"}};
}

constexpr ArchitectureFacts kExaoneMoe = {
    .data_parallel_attention = true, .pipeline = true, .biased_grouped_topk = true, .second_stream = 1};
constexpr std::array<Architecture, 4> kExaoneArchitectures = {{
    {.name = "ExaoneForCausalLM", .facts = {.remote_code = true}},
    {.name = "Exaone4ForCausalLM", .facts = {.pipeline = true}},
    {.name = "ExaoneMoEForCausalLM", .facts = kExaoneMoe},
    {.name = "ExaoneMoeForCausalLM", .facts = kExaoneMoe},
}};
constexpr std::pair<const char*, const char*> kExaoneKeys[] = {{"num_layers", "num_hidden_layers"},
                                                               {"layer_norm_epsilon", "rms_norm_eps"},
                                                               {"activation_function", "hidden_act"},
                                                               {"num_experts", "n_routed_experts"},
                                                               {"num_shared_experts", "n_shared_experts"}};

}  // namespace

extern const ModelFamily kExaoneFamily;
const ModelFamily kExaoneFamily = {
    .architectures = kExaoneArchitectures, .read = read_exaone, .other_keys = kExaoneKeys};

}  // namespace tpsim::rank
