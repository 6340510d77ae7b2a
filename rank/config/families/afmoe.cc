// AFMoE of Arcee (Trinity): norms before and behind attention and MLP, windows in three of four layers, which
// alone are rotated, every element that heads say weighed by a gate; experts chosen by sigmoids behind the
// first dense layers.
#include <array>
#include <cmath>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_afmoe(const ConfigReader& config, ModelConfig& model) {
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.qk_norm = model.post_norms = model.attn_output_gate = model.names.gates_apart = true;
  if (config.flag("mup_enabled", false)) model.embedding_scale = std::sqrt(double(model.hidden_size));
  model.names.router = "router.gate";
  model.names.renamed = {{"self_attn.g_proj", "self_attn.gate_proj"},
                         {"pre_feedforward_layernorm", "pre_mlp_layernorm"},
                         {"post_feedforward_layernorm", "post_mlp_layernorm"},
                         {"mlp.router.gate.e_score_correction_bias", "mlp.expert_bias"}};
  const std::uint32_t pattern = config.number_or("global_attn_every_n_layers", 4);
  read_layers(config, model, [&](std::uint32_t layer) { return (layer + 1) % pattern != 0; });
  for (LayerConfig& layer : model.layers)
    if (layer.sliding_window == 0) layer.rope = LayerConfig::kNoRope;
  read_rope(config, model);
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.number_or("num_shared_experts", 0, 0);
  moe.normalize_weights = config.flag("route_norm", true);
  moe.routed_scaling_factor = config.real("route_scale", 1, 1e-3, 1e3);
  if (config.text("score_func", "sigmoid") != "sigmoid")
    throw_user_error("{}: key \"score_func\" must be sigmoid, as of all released models", config.where());
  moe.scoring = ExpertScoring::kSigmoid;
  for (std::uint32_t i = config.number_or("num_dense_layers", 1, 0); i < model.num_layers; ++i)
    model.layers[i].moe = true;
}

constexpr std::array<Architecture, 1> kAfmoeArchitectures = {
    {{.name = "AfmoeForCausalLM", .facts = {.torch_router = true}}}};

}  // namespace

extern const ModelFamily kAfmoeFamily;
const ModelFamily kAfmoeFamily = {kAfmoeArchitectures, read_afmoe};

}  // namespace tpsim::rank
