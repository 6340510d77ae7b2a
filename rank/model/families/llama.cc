// Llama 1 to 3 and models of its shape.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model);
}

constexpr std::array<std::string_view, 1> kArchitectures = {"LlamaForCausalLM"};

}  // namespace

extern const ModelFamily kLlamaFamily;
const ModelFamily kLlamaFamily = {kArchitectures, read};

}  // namespace tpsim::rank
