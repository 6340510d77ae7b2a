// Step 3.5: windows in three of four layers, which have more heads; every head's output weighed by a gate;
// experts with a bias that chooses, beside one that is shared.
#include <algorithm>
#include <array>

#include "proto/base/text.h"
#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_step_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("moe_num_experts", 1, kMostExperts);
  moe.top_k = config.number("moe_top_k", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  const std::uint32_t shared = config.number_or("share_expert_dim", moe.intermediate_size);
  if (shared % moe.intermediate_size != 0)
    throw_user_error("{}: share_expert_dim {} is not a multiple of moe_intermediate_size {}", config.where(),
                     shared, moe.intermediate_size);
  moe.num_shared_experts = shared / moe.intermediate_size;
  moe.scoring = ExpertScoring::kSigmoid;
  moe.normalize_weights = config.flag("norm_expert_weight", true);
  moe.routed_scaling_factor = config.real("moe_router_scaling_factor", 1, 1e-3, 1e3);
  for (const std::string& layer : split_list(config.text("moe_layers_enum", "")))
    model.layers[parse_count("moe_layers_enum", layer, 0, model.num_layers - 1)].moe = true;
  model.names.experts = ExpertLayout::kStacked;
  model.names.renamed = {{".mlp.gate.e_score_correction_bias", ".moe.router_bias"},
                         {".mlp.gate.", ".moe.gate."},
                         {".mlp.experts.", ".moe."},
                         {".mlp.shared_experts.", ".share_expert."}};
}

// The entry of a layer in a list that has one for each, and perhaps for those that draft; `otherwise` where
// there is no list.
double of_layer(const ConfigReader& config, const char* key, std::uint32_t layer, double otherwise) {
  if (!config.has(key)) return otherwise;
  const Json& list = config.json()[key];
  if (!list.is_array() || list.size() <= layer || !(list[layer].is_number() || list[layer].is_null()) ||
      (list[layer].is_number() && !(list[layer] >= 0)))
    throw_user_error("{}: key \"{}\" must be a list of numbers, one for each layer", config.where(), key);
  return list[layer].is_null() ? 0 : list[layer].get<double>();
}

// Layers turn by their kind: as the first of it says, and full attention scaled, too.
void read_step_rope(const ConfigReader& config, ModelConfig& model) {
  Json kinds = Json::object();
  for (std::uint32_t i = model.num_layers; i-- > 0;) {
    const bool slides = model.layers[i].sliding_window > 0;
    Json one = Json::object();
    if (!slides && config.has("rope_scaling")) one = config.json()["rope_scaling"];
    if (!one.is_object()) throw_user_error("{}: key \"rope_scaling\" must be an object", config.where());
    one["rope_theta"] = of_layer(config, "rope_theta", i, slides ? 1e4 : 5e6);
    one["partial_rotary_factor"] = of_layer(config, "partial_rotary_factors", i, slides ? 1 : 0.5);
    kinds[slides ? "sliding_attention" : "full_attention"] = one;
  }
  const Json json = {{"rope_parameters", kinds}};
  read_rope(ConfigReader(json, config.where()), model, {.partial_rotary_factor = 1.0});
}

void read_step3p5(const ConfigReader& config, ModelConfig& model) {
  model.activation = Activation::kSilu;
  model.num_key_value_heads = config.number("num_attention_groups", 1, model.num_attention_heads);
  model.qk_norm = config.flag("use_qk_norm", true);
  model.norm_plus_one = true;
  model.head_gates = config.flag("use_head_wise_attn_gate", false);
  read_layers(config, model);
  const Json& json = config.json();
  const Json other = json.contains("attention_other_setting") ? json["attention_other_setting"] : Json();
  if (other.is_object()) {
    const ConfigReader reader(other, config.where() + ": attention_other_setting");
    const AttentionHeads heads = {
        .num_heads = reader.number_or("num_attention_heads", model.num_attention_heads),
        .num_kv_heads = reader.number_or("num_attention_groups", model.num_key_value_heads),
        .head_dim = reader.number_or("head_dim", model.head_dim)};
    if (heads.num_heads % heads.num_kv_heads != 0 || heads.head_dim > 1024)
      throw_user_error("{}: num_attention_groups {} must divide num_attention_heads {}", reader.where(),
                       heads.num_kv_heads, heads.num_heads);
    for (LayerConfig& layer : model.layers)
      if (layer.sliding_window > 0) layer.heads = heads;
  }
  for (const LayerConfig& layer : model.layers)
    if (layer.sliding_window > 1) model.swa_pool_window = layer.sliding_window - 1;
  read_step_rope(config, model);
  read_step_experts(config, model);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    model.layers[i].expert_limit = of_layer(config, "swiglu_limits", i, 0);
    model.layers[i].mlp_limit = of_layer(config, "swiglu_limits_shared", i, 0);
  }
}

constexpr std::array<Architecture, 1> kStep3p5Architectures = {{
    {.name = "Step3p5ForCausalLM",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .pipeline = true,
               .fp32_router = 1,
               .remote_code = true}},
}};

}  // namespace

extern const ModelFamily kStep3p5Family;
const ModelFamily kStep3p5Family = {kStep3p5Architectures, read_step3p5};

}  // namespace tpsim::rank
