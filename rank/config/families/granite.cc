// Granite of IBM: Llama whose embeddings, sums, scores and logits are multiplied by numbers of the config;
// with experts (GraniteMoe, and beside a shared MLP), and with Mamba 2 in most layers (Granite 4). MiniCPM,
// whose numbers of the same kind are said in another way.
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

void read_granite_experts(const ConfigReader& config, ModelConfig& model, std::uint32_t shared) {
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = model.intermediate_size;
  moe.scoring = ExpertScoring::kTopKThenSoftmax;
  if (shared % moe.intermediate_size != 0)
    throw_user_error("{}: shared_intermediate_size {} is not a multiple of intermediate_size {}",
                     config.where(), shared, moe.intermediate_size);
  moe.num_shared_experts = shared / moe.intermediate_size;
  model.names.renamed = {{"mlp.shared_experts.gate_up_proj", "shared_mlp.input_linear"},
                         {"mlp.shared_experts.down_proj", "shared_mlp.output_linear"},
                         {"mlp.gate.weight", "block_sparse_moe.router.layer.weight"},
                         {"mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"},
                         {"mlp.experts.down_proj", "block_sparse_moe.output_linear.weight"},
                         {".mixer.", ".mamba."}};
  for (LayerConfig& layer : model.layers) layer.moe = true;
}

// Granite 4: Mamba 2 or attention, and behind either experts beside a shared MLP, or the latter alone.
void read_granite_hybrid(const ConfigReader& config, ModelConfig& model) {
  const char* const key = config.has("layer_types") ? "layer_types" : "layers_block_type";
  const std::string rotation = config.text("position_embedding_type", "nope");
  if (!config.has(key) || !config.json()[key].is_array() || config.json()[key].size() != model.num_layers)
    throw_user_error("{}: key \"layer_types\" must name {} layers", config.where(), model.num_layers);
  model.layers.assign(model.num_layers, {});
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    const Json& kind = config.json()[key][i];
    model.layers[i].linear = kind == "mamba" || kind == "linear_attention";
    if (!model.layers[i].linear && kind != "attention" && kind != "full_attention")
      throw_user_error("{}: key \"{}\" may hold mamba and attention only", config.where(), key);
    if (rotation != "rope") model.layers[i].rope = LayerConfig::kNoRope;
    model.linear.num_layers += model.layers[i].linear ? 1 : 0;
  }
  if (model.linear.num_layers == model.num_layers)
    throw_user_error("{}: some layers must have attention", config.where());
  const std::uint32_t shared = config.number("shared_intermediate_size");
  if (model.linear.num_layers > 0) {
    read_mamba2(config, model);
    // Transformers norms all channels at once, SGLang those of a group; and no other release is known.
    if (model.linear.num_key_heads != 1 || config.flag("mamba_proj_bias", false))
      throw_user_error("{}: mamba_n_groups other than 1 and mamba_proj_bias are not simulated",
                       config.where());
  }
  model.names.fused_gate_up = true;
  if (config.number_or("num_local_experts", 0, 0) > 0) {
    read_granite_experts(config, model, shared);
    return;
  }
  model.intermediate_size = shared;
  model.names.renamed = {{"mlp.gate_up_proj", "shared_mlp.input_linear"},
                         {"mlp.down_proj", "shared_mlp.output_linear"},
                         {".mixer.", ".mamba."}};
}

void read_granite(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.embedding_scale = config.real("embedding_multiplier", 1, 1e-6, 1e6);
  model.residual_scale = config.real("residual_multiplier", 1, 1e-6, 1e6);
  model.attention_scale = config.real("attention_multiplier", 1, 1e-6, 1e6);
  model.logit_scale = 1 / config.real("logits_scaling", 1, 1e-6, 1e6);
  if (model.architecture == "GraniteMoeHybridForCausalLM") {
    read_granite_hybrid(config, model);
  } else {
    read_layers(config, model);
    const bool beside = model.architecture == "GraniteMoeSharedForCausalLM";
    if (model.architecture != "GraniteForCausalLM") {
      model.names.fused_gate_up = true;
      read_granite_experts(config, model, beside ? config.number_or("shared_intermediate_size", 0, 0) : 0);
    }
  }
  read_rope(config, model);
}

void read_minicpm(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.embedding_scale = config.real("scale_emb", 1, 1e-6, 1e6);
  model.residual_scale = config.real("scale_depth", 1, 1e-6, 1e6) / std::sqrt(model.num_layers);
  model.logit_scale = config.real("dim_model_base", model.hidden_size, 1, 1e6) / model.hidden_size;
  model.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  read_layers(config, model);
  read_rope(config, model);
}

void read_granite_or_minicpm(const ConfigReader& config, ModelConfig& model) {
  (model.architecture == "MiniCPMForCausalLM" ? read_minicpm : read_granite)(config, model);
}

constexpr std::array<Architecture, 5> kGraniteArchitectures = {{
    {.name = "GraniteForCausalLM"},
    {.name = "GraniteMoeForCausalLM"},
    {.name = "GraniteMoeSharedForCausalLM"},
    {.name = "GraniteMoeHybridForCausalLM",
     .facts = {.pipeline = true, .head_on_every_stage = true, .eager_prefill = true}},
    {.name = "MiniCPMForCausalLM", .facts = {.remote_code = true}},
}};
constexpr std::pair<const char*, const char*> kGraniteKeys[] = {{"mamba_n_heads", "mamba_num_heads"},
                                                                {"mamba_d_head", "mamba_head_dim"},
                                                                {"mamba_d_state", "ssm_state_size"}};

}  // namespace

extern const ModelFamily kGraniteFamily;
const ModelFamily kGraniteFamily = {
    .architectures = kGraniteArchitectures, .read = read_granite_or_minicpm, .other_keys = kGraniteKeys};

}  // namespace tpsim::rank
