// Qwen3-Next and Qwen3.5: gated delta-net layers with full attention in every fourth, gated attention
// outputs, a part of each head rotated, norms stored less 1, and experts of which the shared one has a gate.
#include <array>
#include <string>
#include <vector>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

bool is_next(const ModelConfig& model) { return model.architecture == "Qwen3NextForCausalLM"; }

void read_layer_kinds(const ConfigReader& config, ModelConfig& model) {
  model.layers.assign(model.num_layers, {});
  const std::uint32_t interval = config.number_or("full_attention_interval", 4);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].linear = (i + 1) % interval != 0;
  if (config.has("layer_types")) {
    const std::vector<bool> linear =
        read_kinds(config, "layer_types", model.num_layers, "full_attention", "linear_attention");
    for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].linear = linear[i];
  }
  for (const LayerConfig& layer : model.layers) model.linear.num_layers += layer.linear ? 1 : 0;
  // SGLang's layers are built for both kinds, and a KV pool of no layers is no pool.
  if (model.linear.num_layers == 0 || model.linear.num_layers == model.num_layers) {
    throw_user_error("{}: layers must be of both kinds, full_attention and linear_attention, and are of one",
                     config.where());
  }
}

std::uint32_t state_bytes(const ConfigReader& config) {
  const std::string dtype = config.text("mamba_ssm_dtype", "float32");
  if (dtype == "float32") return 4;
  if (dtype == "bfloat16" || dtype == "float16") return 2;
  throw_user_error("{}: key \"mamba_ssm_dtype\" is \"{}\"; it must be float32, bfloat16 or float16",
                   config.where(), dtype.substr(0, 40));
}

void read_linear(const ConfigReader& config, ModelConfig& model) {
  LinearAttentionConfig& linear = model.linear;
  linear.num_key_heads = config.number_or("linear_num_key_heads", 16);
  linear.num_value_heads = config.number_or("linear_num_value_heads", 32);
  linear.key_head_dim = config.number_or("linear_key_head_dim", 128);
  linear.value_head_dim = config.number_or("linear_value_head_dim", 128);
  linear.conv_kernel = config.number_or("linear_conv_kernel_dim", 4, 2);
  linear.state_bytes = state_bytes(config);
  linear.packed = is_next(model);
  constexpr std::uint32_t kMost = 1U << 12;
  if (linear.num_value_heads > kMost || linear.num_value_heads % linear.num_key_heads != 0) {
    throw_user_error("{}: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}, up to {}",
                     config.where(), linear.num_value_heads, linear.num_key_heads, kMost);
  }
  if (linear.key_head_dim > 1024 || linear.value_head_dim > 1024 || linear.conv_kernel > 64) {
    throw_user_error(
        "{}: linear_key_head_dim {} and linear_value_head_dim {} may be up to 1024, linear_conv_kernel_dim "
        "{} up to 64",
        config.where(), linear.key_head_dim, linear.value_head_dim, linear.conv_kernel);
  }
}

void read_hybrid_experts(const ConfigReader& config, ModelConfig& model) {
  const bool dense = model.architecture == "Qwen3_5ForCausalLM" ||
                     model.architecture == "Qwen3_5ForConditionalGeneration" ||
                     (config.has("num_experts") && config.number("num_experts", 0) == 0);
  if (dense) return;
  MoeConfig& moe = model.moe;
  const bool next = is_next(model);
  moe.num_experts = config.number_or("num_experts", next ? 512 : 256);
  moe.top_k = config.number_or("num_experts_per_tok", next ? 10 : 8);
  moe.intermediate_size = config.number_or("moe_intermediate_size", 512);
  if (moe.num_experts > kMostExperts || moe.top_k > kMostExperts || moe.intermediate_size > kWidestExpert)
    throw_user_error("{}: more than {} experts, or wider than {}", config.where(), kMostExperts,
                     kWidestExpert);
  // Qwen3.5 always normalises.
  moe.normalize_weights = !next || config.flag("norm_topk_prob", true);
  const std::uint32_t shared = config.number_or("shared_expert_intermediate_size", 512);
  if (shared % moe.intermediate_size != 0) {
    throw_user_error("{}: shared_expert_intermediate_size {} is not a multiple of moe_intermediate_size {}",
                     config.where(), shared, moe.intermediate_size);
  }
  moe.num_shared_experts = shared / moe.intermediate_size;
  moe.shared_gate = true;
  model.names.shared = "shared_expert.";
  if (config.number_or("decoder_sparse_step", 1) != 1 ||
      (config.has("mlp_only_layers") && !config.json()["mlp_only_layers"].empty())) {
    throw_user_error(
        "{}: SGLang gives every layer of this model experts; decoder_sparse_step must be 1 and "
        "mlp_only_layers empty",
        config.where());
  }
  for (LayerConfig& layer : model.layers) layer.moe = true;
}

void read_qwen_hybrid(const ConfigReader& config, ModelConfig& model) {
  if (config.flag("attention_bias", false))
    throw_user_error("{}: key \"attention_bias\" is true, which is not supported for {}", config.where(),
                     model.architecture);
  model.qk_norm = true;
  model.norm_plus_one = true;
  model.attn_output_gate = config.flag("attn_output_gate", true);
  model.activation = read_activation(config, "hidden_act", "silu");
  if (model.activation != Activation::kSilu)
    throw_user_error("{}: key \"hidden_act\" must be silu for {}", config.where(), model.architecture);
  read_layer_kinds(config, model);
  read_linear(config, model);
  read_rope(config, model, {.partial_rotary_factor = 0.25});
  if (model.rope_dim(model.ropes.front()) < 2 || model.rope_dim(model.ropes.front()) % 2 != 0) {
    throw_user_error("{}: partial_rotary_factor {} of head_dim {} is not an even number of elements",
                     config.where(), model.ropes.front().partial_rotary_factor, model.head_dim);
  }
  read_hybrid_experts(config, model);
}

constexpr ArchitectureFacts kHybridFacts = {.data_parallel_attention = true,
                                            .deepep = true,
                                            .next_layer = true,
                                            .trtllm_experts = TrtllmExperts::k16BitFp8OrNvfp4,
                                            .second_stream = 1};
constexpr ArchitectureFacts without_next_layer(ArchitectureFacts facts) {
  facts.next_layer = false;
  return facts;
}
constexpr ArchitectureFacts hybrid_facts_of(std::uint8_t fuses_all_reduces, bool ArchitectureFacts::*fact) {
  ArchitectureFacts facts = kHybridFacts;
  facts.fuses_all_reduces = fuses_all_reduces;
  facts.*fact = true;
  return facts;
}
constexpr std::array<Architecture, 5> kQwenHybridArchitectures = {{
    {.name = "Qwen3NextForCausalLM", .facts = hybrid_facts_of(4, &ArchitectureFacts::not_in_compiled_pieces)},
    {.name = "Qwen3_5ForCausalLM", .facts = without_next_layer(kHybridFacts)},
    {.name = "Qwen3_5MoeForCausalLM", .facts = kHybridFacts},
    {.name = "Qwen3_5ForConditionalGeneration", .facts = hybrid_facts_of(3, &ArchitectureFacts::multimodal)},
    {.name = "Qwen3_5MoeForConditionalGeneration",
     .facts = hybrid_facts_of(3, &ArchitectureFacts::multimodal)},
}};

}  // namespace

extern const ModelFamily kQwenHybridFamily;
const ModelFamily kQwenHybridFamily = {kQwenHybridArchitectures, read_qwen_hybrid};

}  // namespace tpsim::rank
