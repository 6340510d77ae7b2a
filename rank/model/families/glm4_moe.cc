// GLM-4.5 and 4.6: experts behind the first dense layers, half of each head rotated.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

void read(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.flag("attention_bias", false);
  model.qk_norm = config.flag("use_qk_norm", false);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model, {.partial_rotary_factor = 0.5});
  read_grouped_experts(config, model, {.normalize_weights = true});
  model.moe.num_fused_shared_experts = model.moe.num_shared_experts;
}

constexpr std::array<std::string_view, 1> kArchitectures = {"Glm4MoeForCausalLM"};

}  // namespace

extern const ModelFamily kGlm4MoeFamily;
const ModelFamily kGlm4MoeFamily = {kArchitectures, read};

}  // namespace tpsim::rank
