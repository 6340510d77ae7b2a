// A family that nobody has: Llama under another name, with facts of its own.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_toy_llama(const ConfigReader& config, ModelConfig& model) {
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model);
}

constexpr std::array<Architecture, 1> kArchitectures = {
    {{.name = "ToyLlamaForCausalLM", .facts = {.data_parallel_attention = true}}}};

}  // namespace

extern const ModelFamily kToyLlamaFamily;
const ModelFamily kToyLlamaFamily = {.architectures = kArchitectures, .read = read_toy_llama};

}  // namespace tpsim::rank
