// Mistral 7B and its successors (Mistral Small 3.1's text model): Llama with a window in every layer, where a
// window is given.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.flag("attention_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model, [](std::uint32_t) { return true; });
  read_rope(config, model);
}

constexpr std::array<std::string_view, 2> kArchitectures = {"MistralForCausalLM",
                                                            "Mistral3ForConditionalGeneration"};

}  // namespace

extern const ModelFamily kMistralFamily;
const ModelFamily kMistralFamily = {kArchitectures, read};

}  // namespace tpsim::rank
