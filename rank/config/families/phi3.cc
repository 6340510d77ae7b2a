// Phi-3 and Phi-4: Llama with fused projections in the checkpoint and a part of each head rotated.
// Phi-3.5-MoE: norms that take the mean off, and experts whose choice (sparsemixer) is priced and not
// computed.
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

void read_phimoe(const ConfigReader& config, ModelConfig& model) {
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.layer_norms = model.norm_bias = true;
  config.has("sliding_window");  // no layer of SGLang's class has one
  model.layers.assign(model.num_layers, {});
  read_rope(config, model);
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = model.intermediate_size;
  for (LayerConfig& layer : model.layers) layer.moe = true;
}

void read_phi(const ConfigReader& config, ModelConfig& model) {
  (model.architecture == "Phi3ForCausalLM" ? read_phi3 : read_phimoe)(config, model);
}

constexpr std::array<Architecture, 2> kPhi3Architectures = {{
    {.name = "PhiMoEForCausalLM", .facts = {.priced_only = true, .remote_code = true}},
    {.name = "Phi3ForCausalLM",
     .facts = {.pipeline = true, .head_on_every_stage = true, .tied_head_is_embedding = true}},
}};

}  // namespace

extern const ModelFamily kPhi3Family;
const ModelFamily kPhi3Family = {kPhi3Architectures, read_phi};

}  // namespace tpsim::rank
