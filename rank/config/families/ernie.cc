// ERNIE 4.5: Llama with neighbours rotated in pairs, and in the larger sizes experts from a layer on, in some
// beside two that are shared.
#include <algorithm>
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_ernie(const ConfigReader& config, ModelConfig& model) {
  const bool bias = config.flag("use_bias", false);
  model.qkv_bias = model.o_bias = model.mlp_bias = bias;
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model, {.theta = 500000});
  model.ropes.front().interleaved = true;
  if (model.architecture != "Ernie4_5_MoeForCausalLM") return;
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("moe_num_experts", 1, kMostExperts);
  moe.top_k = config.number("moe_k", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.number_or("moe_num_shared_experts", 0, 0);
  moe.normalize_weights = moe.softmax_bias = true;
  model.names.renamed = {{"mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias"}};
  const std::uint32_t first = config.number_or("moe_layer_start_index", model.num_layers, 0);
  const std::uint32_t step = config.number_or("moe_layer_interval", 1);
  const bool to_end = !config.has("moe_layer_end_index") || config.json()["moe_layer_end_index"] == -1;
  const std::uint32_t last = to_end ? model.num_layers - 1 : config.number("moe_layer_end_index", 0);
  for (std::uint32_t i = first; i < model.num_layers && i <= last; ++i)
    model.layers[i].moe = (i - first) % step == 0;
}

constexpr std::array<Architecture, 3> kErnieArchitectures = {{
    {.name = "Ernie4_5_MoeForCausalLM"},
    {.name = "Ernie4_5_ForCausalLM"},
    {.name = "Ernie4_5ForCausalLM"},
}};

}  // namespace

extern const ModelFamily kErnieFamily;
const ModelFamily kErnieFamily = {kErnieArchitectures, read_ernie};

}  // namespace tpsim::rank
