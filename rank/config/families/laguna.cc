// Laguna (poolside): what heads say weighed by the softplus of a gate, of each head or of each element;
// windows in some sizes, whose layers may have more heads; experts chosen by sigmoids, beside one that is
// shared.
#include <array>
#include <string>
#include <vector>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_laguna_gates(const ConfigReader& config, ModelConfig& model) {
  constexpr const char* kKey = "gating";
  if (!config.has(kKey)) {
    model.head_gates = true;
    return;
  }
  const Json& gating = config.json()[kKey];
  if (gating == true || gating == "per-head")
    model.head_gates = true;
  else if (gating == "per-element")
    model.attn_output_gate = true;
  else if (gating != false && gating != "disabled")
    throw_user_error("{}: key \"{}\" must be true, false, \"per-head\" or \"per-element\"", config.where(),
                     kKey);
}

void read_laguna(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  model.qkv_bias = config.flag("attention_bias", false);
  model.qk_norm = model.softplus_gates = model.names.gates_apart = true;
  model.names.shared = "shared_expert.";
  model.names.renamed = {{"mlp.gate.e_score_correction_bias", "mlp.experts.e_score_correction_bias"}};
  read_layers(config, model);
  read_laguna_gates(config, model);
  const std::vector<std::uint32_t> heads = read_numbers(config, "num_attention_heads_per_layer", 1U << 14);
  if (!heads.empty() && heads.size() != model.num_layers)
    throw_user_error("{}: key \"num_attention_heads_per_layer\" has {} entries, but num_hidden_layers is {}",
                     config.where(), heads.size(), model.num_layers);
  // Gates of heads are a projection of their own where kinds of heads have them (rank/llm/layers.cc).
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    LayerConfig& layer = model.layers[i];
    if (layer.sliding_window > 1) model.swa_pool_window = layer.sliding_window - 1;
    const std::uint32_t own = heads.empty() ? model.num_attention_heads : heads[i];
    if (own == 0 || own % model.num_key_value_heads != 0)
      throw_user_error("{}: layer {} has {} heads, not a multiple of the {} of num_key_value_heads",
                       config.where(), i, own, model.num_key_value_heads);
    if (model.head_gates || own != model.num_attention_heads)
      layer.heads = {.num_heads = own, .num_kv_heads = model.num_key_value_heads, .head_dim = model.head_dim};
  }
  read_rope(config, model, {.theta = 500000, .partial_rotary_factor = 1.0});
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  const std::uint32_t shared = config.number_or("shared_expert_intermediate_size", moe.intermediate_size);
  if (shared % moe.intermediate_size != 0)
    throw_user_error("{}: shared_expert_intermediate_size {} is not a multiple of moe_intermediate_size {}",
                     config.where(), shared, moe.intermediate_size);
  moe.num_shared_experts = shared / moe.intermediate_size;
  moe.scoring = config.text("moe_router_score_func", "sigmoid") == "sigmoid" ? ExpertScoring::kSigmoid
                                                                             : ExpertScoring::kSqrtSoftplus;
  moe.normalize_weights = true;
  if (config.real("moe_router_logit_softcapping", 0, 0, 1e6) > 0)
    throw_user_error("{}: key \"moe_router_logit_softcapping\" must be 0, no other is simulated",
                     config.where());
  moe.routed_scaling_factor = config.real("moe_routed_scaling_factor", 1, 1e-3, 1e3);
  const std::vector<bool> sparse =
      config.has("mlp_layer_types")
          ? read_kinds(config, "mlp_layer_types", model.num_layers, "dense", "sparse")
          : std::vector<bool>();
  for (std::uint32_t i = 0; i < model.num_layers; ++i)
    model.layers[i].moe = sparse.empty() ? i > 0 : static_cast<bool>(sparse[i]);
}

constexpr std::array<Architecture, 1> kLagunaArchitectures = {{
    {.name = "LagunaForCausalLM",
     .facts = {.data_parallel_attention = true, .pipeline = true, .fp32_router = 1}},
}};

}  // namespace

extern const ModelFamily kLagunaFamily;
const ModelFamily kLagunaFamily = {kLagunaArchitectures, read_laguna};

}  // namespace tpsim::rank
