// LFM2 and LFM2.5: gated short convolutions in most layers, attention in the others; in some sizes experts.
#include <algorithm>
#include <array>
#include <vector>

#include "proto/base/ceil_div.h"
#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// models/lfm2.py: two thirds of what the config says, up to a multiple.
std::uint32_t adjusted_width(const ConfigReader& config, std::uint32_t width) {
  if (!config.flag("block_auto_adjust_ff_dim", true)) return width;
  const double scaled = config.real("block_ffn_dim_multiplier", 1, 1e-3, 16) * (2 * width / 3);
  const std::uint32_t unit = std::min(config.number_or("block_multiple_of", 256), kWidestExpert);
  return ceil_align(std::max(1U, static_cast<std::uint32_t>(scaled)), unit);
}

void read_lfm2(const ConfigReader& config, ModelConfig& model) {
  const bool experts = model.architecture == "Lfm2MoeForCausalLM";
  model.activation = Activation::kSilu;
  model.tie_word_embeddings = config.flag("tie_word_embeddings", config.flag("tie_embedding", true));
  model.rms_norm_eps = config.real("norm_eps", 1e-5, 0, 1);
  model.qk_norm = true;
  if (!experts) {
    const std::uint32_t width = config.number_or("block_ff_dim", model.intermediate_size);
    if (width > kWidestExpert)
      throw_user_error("{}: key \"block_ff_dim\" is {}, more than {}", config.where(), width, kWidestExpert);
    model.intermediate_size = adjusted_width(config, width);
  }
  model.layers.assign(model.num_layers, {});
  if (!config.has("layer_types"))
    throw_user_error("{}: key \"layer_types\" is missing; it must name conv and full_attention layers",
                     config.where());
  const std::vector<bool> conv =
      read_kinds(config, "layer_types", model.num_layers, "full_attention", "conv");
  LinearAttentionConfig& linear = model.linear;
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    model.layers[i].linear = conv[i];
    linear.num_layers += conv[i] ? 1 : 0;
  }
  if (linear.num_layers == 0 || linear.num_layers == model.num_layers)
    throw_user_error("{}: layers must be of both kinds, full_attention and conv, and are of one",
                     config.where());
  linear.kind = LinearKind::kShortConv;
  if (config.flag("conv_bias", false))
    throw_user_error("{}: key \"conv_bias\" is true; convolutions with biases are not known", config.where());
  linear.num_value_heads = model.hidden_size;
  linear.value_head_dim = 1;
  linear.conv_kernel = config.number_or("conv_L_cache", 3, 2);
  if (linear.conv_kernel > 64)
    throw_user_error("{}: key \"conv_L_cache\" is {}, more than 64", config.where(), linear.conv_kernel);
  read_rope(config, model, {.theta = 1e6});
  model.names.renamed = {{"model.norm.", "model.embedding_norm."},
                         {".input_layernorm.", ".operator_norm."},
                         {".post_attention_layernorm.", ".ffn_norm."},
                         {".self_attn.o_proj.", ".self_attn.out_proj."},
                         {".self_attn.q_norm.", ".self_attn.q_layernorm."},
                         {".self_attn.k_norm.", ".self_attn.k_layernorm."},
                         {".mlp.gate.e_score_correction_bias", ".feed_forward.expert_bias"},
                         {".mlp.", ".feed_forward."},
                         {".gate_proj.", ".w1."},
                         {".up_proj.", ".w3."},
                         {".down_proj.", ".w2."}};
  if (!experts) return;
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = config.flag("norm_topk_prob", true);
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 1e-3, 1e3);
  if (!config.flag("use_expert_bias", true))
    throw_user_error("{}: key \"use_expert_bias\" is false; routers without a bias are not known",
                     config.where());
  const std::uint32_t dense = config.number_or("num_dense_layers", 2, 0);
  for (std::uint32_t i = dense; i < model.num_layers; ++i) model.layers[i].moe = true;
}

constexpr std::array<Architecture, 3> kLfm2Architectures = {{
    {.name = "Lfm2ForCausalLM", .facts = {.eager_prefill = true}, .model_type = "lfm2"},
    {.name = "Lfm2MoeForCausalLM",
     .facts = {.eager_prefill = true, .overlaps_beside_states = 1},
     .model_type = "lfm2_moe"},
    {.name = "Lfm2VlForConditionalGeneration", .facts = {.eager_prefill = true, .overlaps_beside_states = 2}},
}};

}  // namespace

extern const ModelFamily kLfm2Family;
const ModelFamily kLfm2Family = {kLfm2Architectures, read_lfm2};

}  // namespace tpsim::rank
