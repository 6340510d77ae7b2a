// Llama 1 to 3 and models of its shape, and EAGLE's heads, which are one layer of it
// (rank/model/draft_model.h).
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
  if (model.architecture == "LlamaForCausalLMEagle3")
    model.vocab_size = config.number_or("draft_vocab_size", model.vocab_size);
}

constexpr std::array<std::string_view, 3> kArchitectures = {"LlamaForCausalLM", "LlamaForCausalLMEagle",
                                                            "LlamaForCausalLMEagle3"};

}  // namespace

extern const ModelFamily kLlamaFamily;
const ModelFamily kLlamaFamily = {kArchitectures, read};

}  // namespace tpsim::rank
