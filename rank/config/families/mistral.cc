// Mistral 7B and its successors (Mistral Small 3.1's text model): Llama with a window in every layer, where a
// window is given.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_mistral(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.flag("attention_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model, [](std::uint32_t) { return true; });
  read_rope(config, model);
}

constexpr std::array<Architecture, 2> kMistralArchitectures = {{
    {.name = "MistralForCausalLM",
     .facts = {.pipeline = true, .head_on_every_stage = true, .tied_head_is_embedding = true}},
    {.name = "Mistral3ForConditionalGeneration"},
}};

}  // namespace

extern const ModelFamily kMistralFamily;
const ModelFamily kMistralFamily = {kMistralArchitectures, read_mistral};

}  // namespace tpsim::rank
