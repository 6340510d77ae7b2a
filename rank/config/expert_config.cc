// Routed and shared experts as DeepSeek's and GLM's configs describe them.
#include "rank/config/config_parts.h"

namespace tpsim::rank {
namespace {

// n_group and topk_group.
void read_groups(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_groups = config.number_or("n_group", 1);
  moe.topk_groups = config.number_or("topk_group", 1);
  // A group whose score is the sum of its best two needs two.
  if (moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups ||
      (moe.group_score_top2 && moe.num_groups > 1 && moe.num_experts / moe.num_groups < 2)) {
    throw_user_error("{}: n_group {} and topk_group {} do not divide {} experts into groups", config.where(),
                     moe.num_groups, moe.topk_groups, moe.num_experts);
  }
  if (std::uint64_t{moe.num_experts} / moe.num_groups * moe.topk_groups < moe.top_k)
    throw_user_error("{}: {} of {} groups have fewer than num_experts_per_tok {} experts", config.where(),
                     moe.topk_groups, moe.num_groups, moe.top_k);
}

// Transformers 5 lists the layers' kinds, 4 says how many dense ones come first.
void mark_expert_layers(const ConfigReader& config, ModelConfig& model) {
  if (!config.has("mlp_layer_types")) {
    const std::uint32_t dense = config.number_or("first_k_dense_replace", 0, 0);
    const std::uint32_t frequency = config.number_or("moe_layer_freq", 1);
    for (std::uint32_t i = 0; i < model.num_layers; ++i)
      model.layers[i].moe = i >= dense && i % frequency == 0;
    return;
  }
  const Json& types = config.json()["mlp_layer_types"];
  if (!types.is_array() || types.size() != model.num_layers) {
    throw_user_error("{}: key \"mlp_layer_types\" has {} entries, but num_hidden_layers is {}",
                     config.where(), types.is_array() ? types.size() : 0, model.num_layers);
  }
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    if (types[i] != "dense" && types[i] != "sparse")
      throw_user_error("{}: key \"mlp_layer_types\" may hold dense and sparse only", config.where());
    model.layers[i].moe = types[i] == "sparse";
  }
}

}  // namespace

void read_grouped_experts(const ConfigReader& config, ModelConfig& model, GroupedExpertDefaults defaults) {
  MoeConfig& moe = model.moe;
  const char* experts = config.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  if (!config.has(experts)) return;  // dense after all
  moe.num_experts = config.number(experts, 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.has("n_shared_experts") ? config.number("n_shared_experts", 0, 64) : 0;
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 0, 1e6);
  moe.normalize_weights = config.flag("norm_topk_prob", defaults.normalize_weights);
  moe.scoring = defaults.scoring;
  const bool sigmoid = moe.scoring == ExpertScoring::kSigmoid;
  moe.group_score_top2 = sigmoid;
  if (sigmoid || config.text("topk_method", "greedy") == "group_limited_greedy") read_groups(config, model);
  mark_expert_layers(config, model);
}

}  // namespace tpsim::rank
