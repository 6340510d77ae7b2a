// Hunyuan of Tencent: V1 dense and with experts in every layer beside a shared one, and Hy3, whose experts
// are chosen by sigmoids after a dense layer.
#include <algorithm>
#include <array>
#include <cmath>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// A number, or one for each layer, which must be the same.
std::uint32_t same_in_layers(const ConfigReader& config, const char* key, std::uint32_t otherwise) {
  if (!config.has(key) || !config.json()[key].is_array()) return config.number_or(key, otherwise, 0);
  const std::vector<std::uint32_t> all = read_numbers(config, key, kWidestExpert);
  if (all.empty() || std::ranges::count(all, all.front()) != std::ssize(all))
    throw_user_error("{}: key \"{}\" differs between layers, which is not simulated", config.where(), key);
  return all.front();
}

void read_hunyuan_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  const bool v3 = model.architecture == "HYV3ForCausalLM";
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = same_in_layers(config, v3 || !config.has("moe_topk") ? "num_experts_per_tok" : "moe_topk", 1);
  moe.intermediate_size = same_in_layers(config, "moe_intermediate_size", model.intermediate_size);
  if (moe.top_k == 0 || moe.intermediate_size == 0)
    throw_user_error("{}: keys \"moe_topk\" and \"moe_intermediate_size\" must be at least 1",
                     config.where());
  if (!v3) {
    const std::uint32_t shared =
        config.flag("use_mixed_mlp_moe", false)
            ? same_in_layers(config, "num_shared_expert", 1) * model.intermediate_size
            : 0;
    if (shared % moe.intermediate_size != 0)
      throw_user_error("{}: intermediate_size {} is not a multiple of moe_intermediate_size {}",
                       config.where(), model.intermediate_size, moe.intermediate_size);
    moe.num_shared_experts = shared / moe.intermediate_size;
    moe.normalize_weights = true;
    for (LayerConfig& layer : model.layers) layer.moe = true;
    return;
  }
  moe.num_shared_experts = config.number_or("num_shared_experts", 1, 0);
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = config.flag("route_norm", true);
  moe.routed_scaling_factor = config.real("router_scaling_factor", 1, 1e-3, 1e3);
  const std::uint32_t dense = config.number_or("first_k_dense_replace", 1, 0);
  for (std::uint32_t i = dense; i < model.num_layers; ++i) model.layers[i].moe = true;
}

// DynamicNTKAlphaRotaryEmbedding: rope type "dynamic" with an alpha, whose base is larger at any length.
void read_alpha(const ConfigReader& config, ModelConfig& model) {
  const char* key = config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  RopeConfig& rope = model.ropes.front();
  if (!config.has(key) || rope.type != RopeType::kDynamic) return;
  const ConfigReader scaling(config.json()[key], config.where() + ": rope parameters");
  if (!scaling.has("alpha")) return;
  const double dim = model.head_dim;
  rope.type = RopeType::kDefault;
  rope.theta *= std::pow(scaling.real("alpha", 1, 1, 1e9), dim / (dim - 2));
}

void read_hunyuan(const ConfigReader& config, ModelConfig& model) {
  const bool v3 = model.architecture == "HYV3ForCausalLM";
  if (config.flag("use_cla", false) && config.number_or("cla_share_factor", 1) > 1)
    throw_user_error("{}: key \"use_cla\" is true: layers that take the keys of others are not simulated",
                     config.where());
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.qk_norm = config.flag(v3 ? "qk_norm" : "use_qk_norm", v3);
  model.qk_norm_rotated = !v3;
  model.names.router = v3 ? "router.gate" : "gate.wg";
  model.names.shared = "shared_mlp.";
  if (v3) {
    model.names.renamed = {{"mlp.router.gate.e_score_correction_bias", "mlp.expert_bias"}};
  } else {
    model.names.renamed = {{"self_attn.q_norm", "self_attn.query_layernorm"},
                           {"self_attn.k_norm", "self_attn.key_layernorm"}};
  }
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model, {.theta = v3 ? 11158840.0 : 10000.0});
  read_alpha(config, model);
  const bool experts = config.has("num_experts") && same_in_layers(config, "num_experts", 1) > 1;
  if (experts && model.architecture != "HunYuanDenseV1ForCausalLM") read_hunyuan_experts(config, model);
}

constexpr std::array<Architecture, 3> kHunyuanArchitectures = {{
    {.name = "HunYuanMoEV1ForCausalLM"},
    {.name = "HunYuanDenseV1ForCausalLM"},
    {.name = "HYV3ForCausalLM", .facts = {.second_stream = 1, .fp32_router = 1}},
}};

}  // namespace

extern const ModelFamily kHunyuanFamily;
const ModelFamily kHunyuanFamily = {kHunyuanArchitectures, read_hunyuan};

}  // namespace tpsim::rank
