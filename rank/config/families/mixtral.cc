// Mixtral: Mistral with experts in every layer.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_mixtral(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.flag("attention_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model, [](std::uint32_t) { return true; });
  read_rope(config, model, {.theta = 1e6});
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = model.intermediate_size;
  moe.scoring = ExpertScoring::kTopKThenSoftmax;
  for (LayerConfig& layer : model.layers) layer.moe = true;
}

constexpr std::array<Architecture, 1> kMixtralArchitectures = {{
    {.name = "MixtralForCausalLM", .facts = {.pipeline = true, .head_on_every_stage = true}},
}};

}  // namespace

extern const ModelFamily kMixtralFamily;
const ModelFamily kMixtralFamily = {kMixtralArchitectures, read_mixtral};

}  // namespace tpsim::rank
