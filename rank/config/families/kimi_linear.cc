// Kimi Linear: Kimi Delta Attention in three of four layers, latent attention without rotation in the others,
// and DeepSeek V3's experts under names of its own. Kimi K3: the same with gates of full rank in both kinds
// of layers, experts in a space of their own, and residuals that are mixtures.
//
// Source of K3: SGLang 0.5.23, configs/kimi_k3.py, configs/kimi_linear.py and models/kimi_k3.py.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
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

// What Kimi K3 has besides. Its activation (SiTU) moves what SiLU moves, and bounds of decays cost nothing.
void read_k3(const ConfigReader& config, ModelConfig& model) {
  if (const std::string act = config.text("hidden_act", "silu"); act != "situ" && act != "silu")
    throw_user_error("{}: key \"hidden_act\" is \"{}\"; SGLang's Kimi K3 has situ and silu", config.where(),
                     act.substr(0, 40));
  if (!config.flag("mla_use_nope", true))
    throw_user_error("{}: key \"mla_use_nope\" is false; SGLang's Kimi K3 rotates nothing", config.where());
  if (config.number_or("moe_layer_freq", 1) != 1 ||
      config.text("moe_router_activation_func", "sigmoid") != "sigmoid")
    throw_user_error("{}: \"moe_layer_freq\" must be 1 and \"moe_router_activation_func\" sigmoid",
                     config.where());
  constexpr std::string_view kKnown[] = {"kda_layers",        "full_attn_layers",       "num_heads",
                                         "head_dim",          "short_conv_kernel_size", "gate_lower_bound",
                                         "use_full_rank_gate"};
  const Json& kda = config.json()["linear_attn_config"];
  for (const auto& [key, value] : kda.items())
    if (std::ranges::find(kKnown, key) == std::end(kKnown))
      throw_user_error("{}: linear_attn_config: key \"{}\" is not known of Kimi K3", config.where(),
                       key.substr(0, 40));
  model.linear.full_rank_gate =
      ConfigReader(kda, config.where() + ": linear_attn_config").flag("use_full_rank_gate", false);
  model.attn_output_gate = config.flag("mla_use_output_gate", false);
  model.moe.latent_size = config.number_or("routed_expert_hidden_size", 0, 0);
  model.moe.latent_norm = model.moe.latent_size > 0 && config.flag("latent_moe_use_norm", false);
  model.residual_block = config.number_or("attn_res_block_size", 0, 0);
}

void read_kimi_linear(const ConfigReader& config, ModelConfig& model) {
  const bool k3 = model.facts.priced_only;
  if (!k3) model.activation = read_activation(config, "hidden_act", "silu");
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
  if (k3) read_k3(config, model);
}

constexpr std::array<Architecture, 2> kKimiLinearArchitectures = {{
    {.name = "KimiLinearForCausalLM",
     .facts =
         {.biased_grouped_topk = true, .second_stream = 1, .eager_prefill = true, .late_state_cache = true}},
    {.name = "KimiK3ForConditionalGeneration",
     .facts = {.biased_grouped_topk = true,
               .second_stream = 1,
               .multimodal = true,
               .eager_prefill = true,
               .late_state_cache = true,
               .priced_only = true}},
}};

}  // namespace

extern const ModelFamily kKimiLinearFamily;
const ModelFamily kKimiLinearFamily = {kKimiLinearArchitectures, read_kimi_linear};

}  // namespace tpsim::rank
