// Experts: how many, how wide, in which layers, and how a token chooses.
#include <string>
#include <vector>

#include "rank/model/architecture.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kMostExperts = 4096;
constexpr std::uint32_t kWidest = 1U << 24;

// Qwen3-MoE: each decoder_sparse_step-th layer, but for mlp_only_layers.
void mark_qwen_layers(const ConfigReader& config, ModelConfig& model) {
  const std::uint32_t step = config.number_or("decoder_sparse_step", 1);
  std::vector<bool> dense(model.num_layers, false);
  if (config.has("mlp_only_layers")) {
    const Json& layers = config.json()["mlp_only_layers"];
    if (!layers.is_array())
      throw_user_error("{}: key \"mlp_only_layers\" must be a list of layers", config.where());
    for (const Json& layer : layers) {
      if (!layer.is_number_integer() || layer.get<double>() < 0 || layer.get<double>() >= model.num_layers) {
        throw_user_error("{}: key \"mlp_only_layers\" must hold whole numbers from 0 to {}", config.where(),
                         model.num_layers - 1);
      }
      dense[layer.get<std::size_t>()] = true;
    }
  }
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = !dense[i] && (i + 1) % step == 0;
}

void read_deepseek(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  const char* experts = config.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  if (!config.has(experts)) return;  // dense after all
  moe.num_experts = config.number(experts, 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidest);
  moe.num_shared_experts = config.has("n_shared_experts") ? config.number("n_shared_experts", 0, 64) : 0;
  moe.routed_scaling_factor = config.real("routed_scaling_factor", 1, 0, 1e6);
  moe.normalize_weights = config.flag("norm_topk_prob", false);
  const bool v3 = model.architecture == "DeepseekV3ForCausalLM";
  moe.scoring = v3 ? ExpertScoring::kSigmoid : ExpertScoring::kSoftmaxThenTopK;
  moe.group_score_top2 = v3;
  const bool groups = v3 || config.text("topk_method", "greedy") == "group_limited_greedy";
  if (groups) {
    moe.num_groups = config.number_or("n_group", 1);
    moe.topk_groups = config.number_or("topk_group", 1);
    if (moe.num_groups == 0 || moe.num_experts % moe.num_groups != 0 || moe.topk_groups > moe.num_groups ||
        (v3 && moe.num_groups > 1 && moe.num_experts / moe.num_groups < 2)) {
      throw_user_error("{}: n_group {} and topk_group {} do not divide {} experts into groups",
                       config.where(), moe.num_groups, moe.topk_groups, moe.num_experts);
    }
    if (std::uint64_t{moe.num_experts} / moe.num_groups * moe.topk_groups < moe.top_k)
      throw_user_error("{}: {} of {} groups have fewer than num_experts_per_tok {} experts", config.where(),
                       moe.topk_groups, moe.num_groups, moe.top_k);
  }
  const std::uint32_t dense = config.number_or("first_k_dense_replace", 0, 0);
  const std::uint32_t frequency = config.number_or("moe_layer_freq", 1);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = i >= dense && i % frequency == 0;
}

}  // namespace

void read_moe(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe = {};
  if (model.architecture == "MixtralForCausalLM" || model.architecture == "GptOssForCausalLM") {
    moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
    moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
    moe.intermediate_size = model.intermediate_size;
    moe.scoring = ExpertScoring::kTopKThenSoftmax;
    moe.router_bias = moe.expert_bias = model.architecture == "GptOssForCausalLM";
    for (LayerConfig& layer : model.layers) layer.moe = true;
  } else if (model.architecture == "Qwen3MoeForCausalLM") {
    // Transformers 5 writes num_local_experts.
    moe.num_experts =
        config.number(config.has("num_experts") ? "num_experts" : "num_local_experts", 1, kMostExperts);
    moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
    moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidest);
    moe.normalize_weights = config.flag("norm_topk_prob", false);
    mark_qwen_layers(config, model);
  } else if (model.is_mla()) {
    read_deepseek(config, model);
  }
  for (const LayerConfig& layer : model.layers) moe.num_layers += layer.moe ? 1 : 0;
  if (moe.num_layers == 0) {
    for (LayerConfig& layer : model.layers) layer.moe = false;
    moe = {};
  }
  if (moe.top_k > moe.num_experts) {
    throw_user_error("{}: num_experts_per_tok {} is more than the {} experts", config.where(), moe.top_k,
                     moe.num_experts);
  }
}

}  // namespace tpsim::rank
