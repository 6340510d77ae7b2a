// DeepSeek V2, V3 and R1, V3.2, Kimi K2 (which calls itself V3) and GLM-5: latent attention, experts behind
// the first dense layers, and since V3.2 an indexer that chooses which tokens are attended to.
#include <array>

#include "rank/model/config_parts.h"
#include "rank/model/families.h"

namespace tpsim::rank {
namespace {

constexpr const char* kV2 = "DeepseekV2ForCausalLM";
constexpr const char* kV3 = "DeepseekV3ForCausalLM";
constexpr const char* kV32 = "DeepseekV32ForCausalLM";
constexpr const char* kGlm = "GlmMoeDsaForCausalLM";

void read(const ConfigReader& config, ModelConfig& model) {
  const bool glm = model.architecture == kGlm;
  const bool sparse = glm || model.architecture == kV32;
  model.activation = read_activation(config, "hidden_act", "silu");
  if (glm) model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  read_mla(config, model);
  if (sparse) {
    // layer_types, where there are any, say of every layer that it is indexed.
    model.layers.assign(model.num_layers, {});
    read_indexer(config, model, {.num_heads = glm ? 32U : 64U, .rope_interleaved = glm});
  } else {
    read_layers(config, model);
  }
  read_mla_rope(config, model);
  const bool v2 = model.architecture == kV2;
  read_grouped_experts(config, model,
                       {.scoring = v2 ? ExpertScoring::kSoftmaxThenTopK : ExpertScoring::kSigmoid,
                        .normalize_weights = sparse});
  // SGLang fuses the shared expert of V3 and R1 only; GLM-5's class asks for the same numbers.
  MoeConfig& moe = model.moe;
  if ((model.architecture == kV3 || glm) && moe.num_experts == 256 && moe.num_shared_experts == 1)
    moe.num_fused_shared_experts = 1;
}

constexpr std::array<std::string_view, 4> kArchitectures = {kV2, kV3, kV32, kGlm};

}  // namespace

extern const ModelFamily kDeepseekFamily;
const ModelFamily kDeepseekFamily = {kArchitectures, read};

}  // namespace tpsim::rank
