// Phi-3 and Phi-4: Llama with fused projections in the checkpoint and a part of each head rotated.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_phi3(const ConfigReader& config, ModelConfig& model) {
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.names.fused_projections = true;
  read_layers(config, model, [](std::uint32_t) { return true; });
  read_rope(config, model, {.partial_rotary_factor = 1.0});
}

constexpr std::array<Architecture, 1> kPhi3Architectures = {{
    {.name = "Phi3ForCausalLM",
     .facts = {.pipeline = true, .head_on_every_stage = true, .tied_head_is_embedding = true}},
}};

}  // namespace

extern const ModelFamily kPhi3Family;
const ModelFamily kPhi3Family = {kPhi3Architectures, read_phi3};

}  // namespace tpsim::rank
