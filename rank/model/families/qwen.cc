// Qwen 2 and 3, Qwen3-MoE, and the text models of Qwen2.5-VL and Qwen3-VL.
#include <array>
#include <vector>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

// Each decoder_sparse_step-th layer has experts, but for mlp_only_layers.
void mark_expert_layers(const ConfigReader& config, ModelConfig& model) {
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

// Where rope_scaling does not say it (modeling_qwen2_5_vl.py, modeling_qwen3_vl.py).
std::array<std::uint32_t, 3> mrope_section(std::string_view architecture) {
  if (architecture == "Qwen2_5_VLForConditionalGeneration") return {16, 24, 24};
  if (architecture.starts_with("Qwen3VL")) return {24, 20, 20};
  return {};
}

void read(const ConfigReader& config, ModelConfig& model) {
  const bool qwen2 =
      model.architecture == "Qwen2ForCausalLM" || model.architecture == "Qwen2_5_VLForConditionalGeneration";
  const bool bias = config.flag("attention_bias", false);
  model.qkv_bias = qwen2 || bias;
  model.o_bias = !qwen2 && bias;
  model.qk_norm = !qwen2;
  model.activation = read_activation(config, "hidden_act", "silu");
  const bool windows = config.flag("use_sliding_window", false);
  const std::uint32_t from = windows ? config.number_or("max_window_layers", model.num_layers, 0) : 0;
  read_layers(config, model, [&](std::uint32_t layer) { return windows && layer >= from; });
  read_rope(config, model, {.mrope_section = mrope_section(model.architecture)});
  read_dual_chunk(config, model);
  if (model.architecture != "Qwen3MoeForCausalLM" &&
      model.architecture != "Qwen3VLMoeForConditionalGeneration")
    return;
  MoeConfig& moe = model.moe;
  // Transformers 5 writes num_local_experts.
  moe.num_experts =
      config.number(config.has("num_experts") ? "num_experts" : "num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.normalize_weights = config.flag("norm_topk_prob", false);
  if (model.architecture == "Qwen3VLMoeForConditionalGeneration")
    model.names.experts = ExpertLayout::kColumns;
  mark_expert_layers(config, model);
}

constexpr std::array<std::string_view, 6> kArchitectures = {"Qwen2ForCausalLM",
                                                            "Qwen3ForCausalLM",
                                                            "Qwen3MoeForCausalLM",
                                                            "Qwen2_5_VLForConditionalGeneration",
                                                            "Qwen3VLForConditionalGeneration",
                                                            "Qwen3VLMoeForConditionalGeneration"};

}  // namespace

extern const ModelFamily kQwenFamily;
const ModelFamily kQwenFamily = {kArchitectures, read};

}  // namespace tpsim::rank
