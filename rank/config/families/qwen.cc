// Qwen 2 and 3, MiMo (Xiaomi's first, a Qwen 2), Qwen2-MoE and Qwen3-MoE, and the text models of Qwen2.5-VL
// and Qwen3-VL.
#include <array>
#include <vector>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kMostLayers = 1000;  // of an encoder

// Each decoder_sparse_step-th layer has experts, but for mlp_only_layers.
void mark_qwen_expert_layers(const ConfigReader& config, ModelConfig& model) {
  const std::uint32_t step = config.number_or("decoder_sparse_step", 1);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) model.layers[i].moe = (i + 1) % step == 0;
  for (const std::uint32_t i : read_numbers(config, "mlp_only_layers", model.num_layers))
    model.layers[i].moe = false;
}

// Where rope_scaling does not say it (modeling_qwen2_5_vl.py, modeling_qwen3_vl.py).
std::array<std::uint32_t, 3> mrope_section(std::string_view architecture) {
  if (architecture == "Qwen2_5_VLForConditionalGeneration") return {16, 24, 24};
  if (architecture.starts_with("Qwen3VL")) return {24, 20, 20};
  return {};
}

void read_qwen(const ConfigReader& config, ModelConfig& model) {
  const bool moe2 = model.architecture == "Qwen2MoeForCausalLM";
  const bool qwen2 = model.architecture.starts_with("Qwen2") || model.architecture == "MiMoForCausalLM";
  const bool bias = config.flag("attention_bias", false);
  model.qkv_bias = moe2 ? config.flag("qkv_bias", true) : qwen2 || bias;
  model.o_bias = !qwen2 && bias;
  model.qk_norm = !qwen2;
  model.activation = read_activation(config, "hidden_act", "silu");
  const bool windows = config.flag("use_sliding_window", false);
  if (windows && moe2)
    throw_user_error("{}: key \"use_sliding_window\" is true: SGLang's {} has no windows", config.where(),
                     model.architecture);
  const std::uint32_t from = windows ? config.number_or("max_window_layers", model.num_layers, 0) : 0;
  read_layers(config, model, [&](std::uint32_t layer) { return windows && layer >= from; });
  read_rope(config, model, {.mrope_section = mrope_section(model.architecture)});
  read_dual_chunk(config, model);
  if (!moe2 && model.architecture != "Qwen3MoeForCausalLM" &&
      model.architecture != "Qwen3VLMoeForConditionalGeneration")
    return;
  MoeConfig& moe = model.moe;
  // Transformers 5 writes num_local_experts.
  moe.num_experts =
      config.number(config.has("num_experts") ? "num_experts" : "num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("moe_intermediate_size", 1, kWidestExpert);
  moe.normalize_weights = config.flag("norm_topk_prob", false);
  if (model.architecture == "Qwen3VLMoeForConditionalGeneration")
    model.names.experts = ExpertLayout::kColumns;
  if (moe2) {
    const std::uint32_t shared = config.number_or("shared_expert_intermediate_size", 5632, 0);
    if (shared % moe.intermediate_size != 0)
      throw_user_error("{}: shared_expert_intermediate_size {} is not a multiple of moe_intermediate_size {}",
                       config.where(), shared, moe.intermediate_size);
    moe.num_shared_experts = shared / moe.intermediate_size;
    moe.shared_gate = shared > 0;
    model.names.shared = "shared_expert.";
  }
  mark_qwen_expert_layers(config, model);
}

void read_qwen_markers(const ConfigReader& root, VisionConfig& vision) {
  vision.markers_before = vision.markers_after = 1;  // <|vision_start|>, <|vision_end|>
  vision.marker_ids_before = read_marker(root, "vision_start_token_id");
  vision.marker_ids_after = read_marker(root, "vision_end_token_id");
}

void read_qwen2_5_vision(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kSmartResize;
  vision.num_layers = config.number_or("depth", 32);
  vision.hidden_size = config.number_or("hidden_size", 3584);
  // Rounded up for the kernels (Qwen2_5_VisionTransformer).
  vision.mlp_width = config.number_or("intermediate_size", 3420);
  vision.intermediate_size = (vision.mlp_width + 7) / 8 * 8;
  vision.hidden_act = config.text("hidden_act", "silu");
  vision.num_heads = config.number_or("num_heads", 16);
  vision.patch_size = read_side(config, "patch_size", 14);
  vision.temporal_patch = config.number_or("temporal_patch_size", 2);
  vision.merge_size = config.number_or("spatial_merge_size", 2);
  vision.window_size = config.number_or("window_size", 112);
  vision.full_attention_at = read_numbers(config, "fullatt_block_indexes", kMostLayers, {7, 15, 23, 31});
  vision.full_attention_layers = static_cast<std::uint32_t>(vision.full_attention_at.size());
  vision.gated_mlp = vision.rms_norm = vision.rotary = vision.flat = true;
  vision.min_pixels = 56 * 56;
  vision.max_pixels = 16384 * 28 * 28;  // of the published preprocessor_config.json
  vision.projector_input = vision.hidden_size * vision.merge_size * vision.merge_size;
  vision.projector_hidden = vision.projector_input;
  vision.projector_sharded = vision.data_parallel = true;
  read_qwen_markers(root, vision);
}

void read_qwen3_vision(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kSmartResize;
  vision.num_layers = config.number_or("depth", 27);
  vision.hidden_size = config.number_or("hidden_size", 1152);
  vision.intermediate_size = config.number_or("intermediate_size", 4304);
  vision.num_heads = config.number_or("num_heads", 16);
  vision.patch_size = read_side(config, "patch_size", 16);
  vision.temporal_patch = config.number_or("temporal_patch_size", 2);
  vision.merge_size = config.number_or("spatial_merge_size", 2);
  vision.mlp_width = vision.intermediate_size;
  vision.hidden_act = config.text("hidden_act", "gelu_pytorch_tanh");
  vision.position_embeddings = config.number_or("num_position_embeddings", 2304);
  vision.deepstack_at = read_numbers(config, "deepstack_visual_indexes", kMostLayers, {8, 16, 24});
  vision.deepstack = static_cast<std::uint32_t>(vision.deepstack_at.size());
  vision.rotary = vision.flat = vision.sharded_positions = true;
  vision.min_pixels = 65536;  // of the published preprocessor_config.json
  vision.max_pixels = 16777216;
  vision.projector_input = vision.hidden_size * vision.merge_size * vision.merge_size;
  vision.projector_hidden = vision.projector_input;
  vision.projector_sharded = vision.data_parallel = vision.attention_parallel = true;
  read_qwen_markers(root, vision);
}

constexpr std::array<Architecture, 8> kQwenArchitectures = {{
    {.name = "Qwen2ForCausalLM", .facts = {.pipeline = true, .dual_chunk = true}, .model_type = "qwen2"},
    {.name = "MiMoForCausalLM", .facts = {.pipeline = true, .remote_code = true}},
    {.name = "Qwen2MoeForCausalLM",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .pipeline = true,
               .head_on_every_stage = true,
               .dual_chunk = true,
               .second_stream = 1}},
    {.name = "Qwen3ForCausalLM",
     .facts = {.data_parallel_attention = true, .deepep = true, .pipeline = true},
     .model_type = "qwen3"},
    {.name = "Qwen3MoeForCausalLM",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .pipeline = true,
               .head_on_every_stage = true,
               .dual_chunk = true,
               .trtllm_experts = TrtllmExperts::k16BitFp8OrNvfp4,
               .fuses_all_reduces = 2},
     .model_type = "qwen3_moe"},
    {.name = "Qwen2_5_VLForConditionalGeneration", .facts = {.pipeline = true}},
    {.name = "Qwen3VLForConditionalGeneration",
     .facts = {.data_parallel_attention = true, .deepep = true, .pipeline = true, .profiled_images = true}},
    {.name = "Qwen3VLMoeForConditionalGeneration",
     .facts = {.data_parallel_attention = true,
               .deepep = true,
               .pipeline = true,
               .fuses_all_reduces = 5,
               .profiled_images = true}},
}};

constexpr std::array<VisionArchitecture, 3> kQwenVision = {{
    {.name = "Qwen2_5_VLForConditionalGeneration", .read = read_qwen2_5_vision},
    {.name = "Qwen3VLForConditionalGeneration", .read = read_qwen3_vision},
    {.name = "Qwen3VLMoeForConditionalGeneration", .read = read_qwen3_vision},
}};

}  // namespace

extern const ModelFamily kQwenFamily;
const ModelFamily kQwenFamily = {
    .architectures = kQwenArchitectures, .read = read_qwen, .vision = kQwenVision};

}  // namespace tpsim::rank
