// GLM-4.5 and 4.6: experts after the first dense layers, half of each head rotated.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_glm4_moe(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.flag("attention_bias", false);
  model.qk_norm = config.flag("use_qk_norm", false);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  read_layers(config, model);
  read_rope(config, model, {.partial_rotary_factor = 0.5});
  read_grouped_experts(config, model, {.normalize_weights = true});
  model.moe.num_fused_shared_experts = model.moe.num_shared_experts;
}

constexpr std::array<Architecture, 1> kGlm4MoeArchitectures = {{
    {.name = "Glm4MoeForCausalLM",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .pipeline = true,
               .head_on_every_stage = true,
               .next_layer = true,
               .trtllm_experts = TrtllmExperts::kNvfp4,
               .biased_grouped_topk = true,
               .second_stream = 1,
               .fp32_router = 2,
               .fuses_all_reduces = 2}},
}};

}  // namespace

extern const ModelFamily kGlm4MoeFamily;
const ModelFamily kGlm4MoeFamily = {kGlm4MoeArchitectures, read_glm4_moe};

}  // namespace tpsim::rank
