// Llama 4 (text): three of four layers rotate and attend within chunks, the others do neither and look at
// everything; experts, one of them shared, in all layers or in every other.
#include <array>
#include <string>
#include <vector>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

// no_rope_layers has 1 where a layer rotates.
void read_rotated_layers(const ConfigReader& config, ModelConfig& model) {
  model.layers.assign(model.num_layers, {});
  const std::vector<std::uint32_t> rotates = read_numbers(config, "no_rope_layers", 2);
  if (!rotates.empty() && rotates.size() < model.num_layers) {
    throw_user_error("{}: key \"no_rope_layers\" has {} entries, but num_hidden_layers is {}", config.where(),
                     rotates.size(), model.num_layers);
  }
  const std::uint32_t interval = config.number_or("no_rope_layer_interval", 4);
  const std::uint32_t chunk = config.number_or("attention_chunk_size", 0);
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    const bool rotated = rotates.empty() ? (i + 1) % interval != 0 : rotates[i] == 1;
    model.layers[i].rope = rotated ? 0 : LayerConfig::kNoRope;
    if (rotated) model.layers[i].attention_chunk = chunk;
    // Not with the class of the text alone; a chunk counts as a window of its length.
    if (rotated && model.architecture == "Llama4ForConditionalGeneration") model.swa_pool_window = chunk;
  }
}

void read_llama4_experts(const ConfigReader& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.num_experts = config.number("num_local_experts", 1, kMostExperts);
  moe.top_k = config.number("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config.number("intermediate_size", 1, kWidestExpert);
  moe.num_shared_experts = 1;
  moe.scoring = ExpertScoring::kTopKThenSigmoid;
  moe.weight_on_input = true;
  if (config.has("moe_layers")) {
    for (const std::uint32_t i : read_numbers(config, "moe_layers", model.num_layers))
      model.layers[i].moe = true;
  } else {
    const std::uint32_t step = config.number_or("interleave_moe_layer_step", 1);
    for (std::uint32_t i = step - 1; i < model.num_layers; i += step) model.layers[i].moe = true;
  }
  model.names.mlp = "feed_forward.";
  model.names.router = "router";
  model.names.shared = "shared_expert.";
  model.names.experts = ExpertLayout::kColumns;
}

void read_llama4(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.flag("attention_bias", false);
  model.rms_norm_eps = config.real("rms_norm_eps", 1e-5, 0, 1);
  model.activation = read_activation(config, "hidden_act", "silu");
  model.qk_l2_norm = config.flag("use_qk_norm", true);
  if (config.flag("attn_temperature_tuning", true)) {
    model.temperature_tuning.floor_scale = config.real("floor_scale", 8192, 1, 1e9);
    model.temperature_tuning.attn_scale = config.real("attn_scale", 0.1, 0, 1e3);
  }
  read_rotated_layers(config, model);
  read_rope(config, model, {.theta = 500000});
  model.ropes.front().interleaved = true;
  read_llama4_experts(config, model);
  model.intermediate_size = config.number("intermediate_size_mlp", 1, kWidestExpert);
}

void read_llama4_vision(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kCanvas;
  vision.num_layers = config.number_or("num_hidden_layers", 34);
  vision.hidden_size = config.number_or("hidden_size", 768);
  vision.intermediate_size = config.number_or("intermediate_size", 5632);
  vision.num_heads = config.number_or("num_attention_heads", 16);
  vision.patch_size = read_side(config, "patch_size", 14);
  vision.image_size = read_side(config, "image_size", 336);
  vision.max_tiles = 16;  // of the published preprocessor_config.json
  const double ratio = config.real("pixel_shuffle_ratio", 0.5, 1.0 / 64, 1);
  vision.merge_size = static_cast<std::uint32_t>(1 / ratio + 0.5);
  vision.position_embeddings =
      (vision.image_size / vision.patch_size) * (vision.image_size / vision.patch_size) + 1;
  vision.class_token = vision.rotary = true;
  // The adapter's input is what shuffling makes of hidden_size; projector_input_dim is the width after it.
  vision.projector_input = config.number_or("intermediate_size", 5632);
  vision.projector_hidden = config.number_or("projector_input_dim", 4096);
  vision.second_projector = config.number_or("projector_output_dim", 4096);
  vision.projector_sharded = true;
  vision.markers_before = 1;  // <|image_start|>; <|image|> and separators are counted with the tiles
  vision.markers_after = 1;   // <|image_end|>
  const std::uint32_t begin = read_token(root, "boi_token_index", "boi_token_id");
  const std::uint32_t patch = read_token(root, "image_token_index", "image_token_id");
  if (begin > 0 && patch == begin + 12) {  // in the order of the published tokenizer
    vision.marker_ids_before = {begin};
    vision.marker_ids_after = {begin + 1};
    vision.tile_column_id = begin + 4;
    vision.tile_row_id = begin + 5;
    vision.small_copy_id = begin + 10;
  }
  vision.norm_eps = 1e-5F;  // whatever the config says
  vision.rope_theta = config.real("rope_theta", 10000, 1, 1e12);
  if (config.has("rope_parameters") && config.json()["rope_parameters"].is_object())
    vision.rope_theta = ConfigReader(config.json()["rope_parameters"], config.where() + ": rope_parameters")
                            .real("rope_theta", vision.rope_theta, 1, 1e12);
  vision.on_by_default = false;
}

constexpr std::array<Architecture, 2> kLlama4Architectures = {{
    {.name = "Llama4ForConditionalGeneration",
     .facts = {.data_parallel_attention = true, .second_stream = 1}},
    {.name = "Llama4ForCausalLM", .facts = {.data_parallel_attention = true, .second_stream = 1}},
}};

constexpr std::array<VisionArchitecture, 1> kLlama4Vision = {{
    {.name = "Llama4ForConditionalGeneration", .read = read_llama4_vision},
}};

}  // namespace

extern const ModelFamily kLlama4Family;
const ModelFamily kLlama4Family = {
    .architectures = kLlama4Architectures, .read = read_llama4, .vision = kLlama4Vision};

}  // namespace tpsim::rank
