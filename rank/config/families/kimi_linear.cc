// Kimi Linear: Kimi Delta Attention in three of four layers, latent attention without rotation in the others,
// and DeepSeek V3's experts under names of its own.
#include <array>
#include <vector>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_kda_layers(const ConfigReader& config, ModelConfig& model) {
  const Json& json = config.json();
  if (!config.has("linear_attn_config") || !json["linear_attn_config"].is_object())
    throw_user_error("{}: key \"linear_attn_config\" is missing; it says which layers have KDA",
                     config.where());
  const ConfigReader kda(json["linear_attn_config"], config.where() + ": linear_attn_config");
  LinearAttentionConfig& linear = model.linear;
  linear.kind = LinearKind::kKda;
  linear.num_key_heads = linear.num_value_heads = kda.number("num_heads", 1, 1U << 12);
  linear.key_head_dim = linear.value_head_dim = kda.number("head_dim", 1, 1024);
  linear.conv_kernel = kda.number_or("short_conv_kernel_size", 4, 2);
  if (linear.conv_kernel > 64)
    throw_user_error("{}: \"short_conv_kernel_size\" is {}, more than 64", kda.where(), linear.conv_kernel);
  model.layers.assign(model.num_layers, {});
  for (LayerConfig& layer : model.layers) layer.rope = LayerConfig::kNoRope;
  // Layers are counted from one.
  for (const std::uint32_t layer : read_numbers(kda, "kda_layers", model.num_layers + 1)) {
    if (layer == 0 || model.layers[layer - 1].linear)
      throw_user_error("{}: \"kda_layers\" must name layers from 1, each once", kda.where());
    model.layers[layer - 1].linear = true;
    ++linear.num_layers;
  }
  if (linear.num_layers == 0 || linear.num_layers == model.num_layers)
    throw_user_error("{}: layers must be of both kinds, with KDA and with attention", config.where());
}

void read_kimi_linear(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  read_mla(config, model);
  read_kda_layers(config, model);
  model.ropes = {RopeConfig{}};
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_token", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.number_or("num_shared_experts", 1, 0);
  model.names.renamed = {{".mlp.shared_experts.", ".block_sparse_moe.shared_experts."}};
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = config.flag("moe_renormalize", true);
  moe.num_groups = config.number_or("num_expert_group", 1);
  moe.topk_groups = config.number_or("topk_group", 1);
  moe.group_score_top2 = true;
  if (moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups)
    throw_user_error("{}: num_expert_group {} must divide num_experts {} and be at least topk_group {}",
                     config.where(), moe.num_groups, moe.num_experts, moe.topk_groups);
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 1e-3, 1e3);
  const std::uint32_t dense = config.number_or("first_k_dense_replace", 1, 0);
  for (std::uint32_t i = dense; i < model.num_layers; ++i) model.layers[i].moe = true;
}

constexpr std::array<Architecture, 1> kKimiLinearArchitectures = {{
    {.name = "KimiLinearForCausalLM", .facts = {.biased_grouped_topk = true, .late_state_cache = true}},
}};

}  // namespace

extern const ModelFamily kKimiLinearFamily;
const ModelFamily kKimiLinearFamily = {kKimiLinearArchitectures, read_kimi_linear};

}  // namespace tpsim::rank
