// Phi-3 and Phi-4: Llama with fused projections in the checkpoint and a part of each head rotated.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read(const ConfigReader& config, ModelConfig& model) {
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.names.fused_projections = true;
  read_layers(config, model, [](std::uint32_t) { return true; });
  read_rope(config, model, {.partial_rotary_factor = 1.0});
}

constexpr std::array<std::string_view, 1> kArchitectures = {"Phi3ForCausalLM"};

}  // namespace

extern const ModelFamily kPhi3Family;
const ModelFamily kPhi3Family = {kArchitectures, read};

}  // namespace tpsim::rank
