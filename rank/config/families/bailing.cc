// Ling and Ring of inclusionAI (Bailing). 2.0: experts in groups, half of each head rotated. 2.5 and 2.6:
// lightning attention in most layers, latent attention in the last of each group of layers.
#include <algorithm>
#include <array>
#include <string>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_bailing_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_groups = config.number_or("n_group", 1);
  moe.topk_groups = config.number_or("topk_group", 1);
  moe.group_score_top2 = true;
  if (moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups)
    throw_user_error("{}: n_group {} and topk_group {} do not divide {} experts into groups", config.where(),
                     moe.num_groups, moe.topk_groups, moe.num_experts);
  moe.scoring = config.flag("moe_router_enable_expert_bias", true) ? ExpertScoring::kSigmoid
                                                                   : ExpertScoring::kSoftmaxThenTopK;
  moe.normalize_weights = config.flag("norm_topk_prob", true);
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 1e-3, 1e3);
  const std::uint32_t shared = config.number_or("num_shared_experts", 0, 0) *
                               config.number_or("moe_shared_expert_intermediate_size", moe.intermediate_size);
  if (shared % moe.intermediate_size != 0)
    throw_user_error("{}: shared experts of {} elements are not a multiple of moe_intermediate_size {}",
                     config.where(), shared, moe.intermediate_size);
  moe.num_shared_experts = shared / moe.intermediate_size;
  const std::uint32_t dense = config.number_or("first_k_dense_replace", 0, 0);
  for (std::uint32_t i = dense; i < model.num_layers; ++i) model.layers[i].moe = true;
}

// The last layer of each group attends; or a list has 1 for lightning attention.
void mark_lightning_layers(const ConfigReader& config, ModelConfig& model) {
  constexpr const char* kKey = "layer_group_size";
  if (config.has(kKey) && config.json()[kKey].is_array()) {
    const std::vector<std::uint32_t> kinds = read_numbers(config, kKey, 2);
    if (kinds.size() != model.num_layers)
      throw_user_error("{}: key \"{}\" has {} entries, but num_hidden_layers is {}", config.where(), kKey,
                       kinds.size(), model.num_layers);
    for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].linear = kinds[i] == 1;
  } else {
    const std::uint32_t group = config.number(kKey);
    for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].linear = (i + 1) % group != 0;
  }
  model.linear.num_layers = static_cast<std::uint32_t>(
      std::ranges::count_if(model.layers, [](const LayerConfig& layer) { return layer.linear; }));
  if (model.linear.num_layers == 0 || model.linear.num_layers == model.num_layers)
    throw_user_error("{}: layers must be of both kinds, with lightning and with latent attention",
                     config.where());
}

void read_bailing_hybrid(const ConfigReader& config, ModelConfig& model) {
  if (config.has("short_conv_kernel_size"))
    throw_user_error("{}: key \"short_conv_kernel_size\" is that of Ling 3, whose layers are not simulated",
                     config.where());
  LinearAttentionConfig& linear = model.linear;
  linear.kind = LinearKind::kLightning;
  linear.num_key_heads = linear.num_value_heads = model.num_attention_heads;
  linear.key_head_dim = linear.value_head_dim = config.number("head_dim", 2, 1024);
  linear.conv_kernel = 1;
  linear.norm_groups = config.number_or("group_norm_size", 1);
  read_mla(config, model);
  model.layers.assign(model.num_layers, {});
  mark_lightning_layers(config, model);
  read_mla_rope(config, model);
}

void read_bailing(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  if (model.architecture == "BailingMoeV2_5ForCausalLM") {
    read_bailing_hybrid(config, model);
  } else {
    model.qkv_bias = config.flag("use_qkv_bias", false) || config.flag("use_bias", false);
    model.o_bias = config.flag("use_bias", false);
    model.qk_norm = config.flag("use_qk_norm", false);
    model.names.fused_qkv = true;
    model.names.renamed = {{"model.embed_tokens", "model.word_embeddings"},
                           {"self_attn.qkv_proj", "attention.query_key_value"},
                           {"self_attn.o_proj", "attention.dense"},
                           {"self_attn.q_norm", "attention.query_layernorm"},
                           {"self_attn.k_norm", "attention.key_layernorm"},
                           {"mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias"}};
    read_layers(config, model);
    const double rotated = config.has("rotary_dim")
                               ? config.number("rotary_dim", 2, model.head_dim) / double(model.head_dim)
                               : 1;
    read_rope(config, model, {.theta = 600000, .partial_rotary_factor = rotated});
  }
  read_bailing_experts(config, model);
}

constexpr ArchitectureFacts kBailingFacts = {.data_parallel_attention = true,
                                             .deepep = true,
                                             .pipeline = true,
                                             .biased_grouped_topk = true,
                                             .second_stream = 1,
                                             .fp32_router = 1};
constexpr ArchitectureFacts hybrid_of(ArchitectureFacts facts) {
  facts.late_state_cache = facts.priced_only = true;
  facts.second_stream = 2;
  return facts;
}
constexpr std::array<Architecture, 3> kBailingArchitectures = {{
    {.name = "BailingMoeForCausalLM", .facts = kBailingFacts},
    {.name = "BailingMoeV2ForCausalLM", .facts = with_remote_code(kBailingFacts)},
    {.name = "BailingMoeV2_5ForCausalLM", .facts = hybrid_of(kBailingFacts)},
}};

}  // namespace

extern const ModelFamily kBailingFamily;
const ModelFamily kBailingFamily = {kBailingArchitectures, read_bailing};

}  // namespace tpsim::rank
