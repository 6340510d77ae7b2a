// Mixtral: Mistral with experts in every layer.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read(const ConfigReader& config, ModelConfig& model) {
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

constexpr std::array<std::string_view, 1> kArchitectures = {"MixtralForCausalLM"};

}  // namespace

extern const ModelFamily kMixtralFamily;
const ModelFamily kMixtralFamily = {kArchitectures, read};

}  // namespace tpsim::rank
