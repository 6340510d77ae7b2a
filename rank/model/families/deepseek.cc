// DeepSeek V2 and V3: latent attention, and experts behind the first dense layers.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  const char* experts = config.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  if (!config.has(experts)) return;  // dense after all
  moe.num_experts = config.number(experts, 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = config.has("n_shared_experts") ? config.number("n_shared_experts", 0, 64) : 0;
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 0, 1e6);
  moe.normalize_weights = config.flag("norm_topk_prob", false);
  const bool v2 = model.architecture == "DeepseekV2ForCausalLM";
  moe.scoring = v2 ? ExpertScoring::kSoftmaxThenTopK : ExpertScoring::kSigmoid;
  moe.group_score_top2 = !v2;
  if (!v2 || config.text("topk_method", "greedy") == "group_limited_greedy")
    read_expert_groups(config, model);
  const std::uint32_t dense = config.number_or("first_k_dense_replace", 0, 0);
  const std::uint32_t frequency = config.number_or("moe_layer_freq", 1);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = i >= dense && i % frequency == 0;
}

void read(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  read_mla(config, model);
  read_layers(config, model);
  read_mla_rope(config, model);
  read_experts(config, model);
}

constexpr std::array<std::string_view, 2> kArchitectures = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"};

}  // namespace

extern const ModelFamily kDeepseekFamily;
const ModelFamily kDeepseekFamily = {kArchitectures, read};

}  // namespace tpsim::rank
