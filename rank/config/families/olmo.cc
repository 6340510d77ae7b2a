// OLMo of Ai2. 2 and 3: norms behind attention and MLP alone, queries and keys normed over all heads, and in
// 3 windows in three of four layers, whose rotation is never scaled. OLMoE: experts, and norms before them as
// in Llama.
#include <array>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

double base_of(const ConfigReader& config) {
  const Json empty = Json::object();
  const Json& said = config.has("rope_parameters") ? config.json()["rope_parameters"] : empty;
  return ConfigReader(said, config.where())
      .real("rope_theta", config.real("rope_theta", 5e5, 1, 1e12), 1, 1e12);
}

void read_olmo(const ConfigReader& config, ModelConfig& model) {
  const bool experts = model.architecture == "OlmoeForCausalLM";
  const bool windows = model.architecture == "Olmo3ForCausalLM";
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.qk_norm = model.qk_norm_over_heads = true;
  model.activation = read_activation(config, "hidden_act", "silu");
  if (config.real("clip_qkv", 0, 0, 1e6) > 0)
    throw_user_error("{}: key \"clip_qkv\" must be null, no bound of queries and keys is simulated",
                     config.where());
  read_layers(config, model, [windows](std::uint32_t layer) { return windows && (layer + 1) % 4 != 0; });
  RopeDefaults rope{.theta = experts ? 10000.0 : 5e5};
  if (windows) rope.local_theta = base_of(config);
  read_rope(config, model, rope);
  if (!experts) {
    model.pre_norms = false;
    model.post_norms = true;
    return;
  }
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = model.intermediate_size;
  moe.normalize_weights = config.flag("norm_topk_prob", false);
  for (LayerConfig& layer : model.layers) layer.moe = true;
}

constexpr std::array<Architecture, 3> kOlmoArchitectures = {{
    {.name = "Olmo2ForCausalLM", .facts = {.no_flashinfer = true}},
    {.name = "Olmo3ForCausalLM",
     .facts = {.no_flashinfer = true}},  // served by the class of Olmo2 (configs/olmo3.py)
    {.name = "OlmoeForCausalLM"},
}};

}  // namespace

extern const ModelFamily kOlmoFamily;
const ModelFamily kOlmoFamily = {kOlmoArchitectures, read_olmo};

}  // namespace tpsim::rank
