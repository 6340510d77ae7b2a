#include "rank/model/vision_config.h"

#include <string>
#include <string_view>

#include "proto/base/error.h"
#include "rank/model/config_parts.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kMostPixels = 1U << 28;

// A number, or the first of a list of two equal ones (image_size, patch_size of some configs).
std::uint32_t side(const ConfigReader& config, const char* key, std::uint32_t otherwise) {
  if (config.has(key) && config.json()[key].is_array()) {
    const Json& list = config.json()[key];
    if (list.empty() || !list[0].is_number_unsigned() || list[0].get<double>() < 1 ||
        list[0].get<double>() > kMostPixels)
      throw_user_error("{}: key \"{}\" must hold whole numbers from 1 up", config.where(), key);
    for (const Json& entry : list) {
      if (entry != list[0])
        throw_user_error("{}: key \"{}\" must hold equal numbers, images are cut into squares",
                         config.where(), key);
    }
    return list[0].get<std::uint32_t>();
  }
  return config.number_or(key, otherwise);
}

std::vector<std::uint32_t> layers_of(const ConfigReader& config, const char* key,
                                     std::vector<std::uint32_t> otherwise) {
  if (!config.has(key)) return otherwise;
  const Json& list = config.json()[key];
  if (!list.is_array()) throw_user_error("{}: key \"{}\" must be a list of layers", config.where(), key);
  std::vector<std::uint32_t> layers;
  for (const Json& layer : list) {
    if (!layer.is_number_unsigned() || layer.get<double>() >= kMostPixels)
      throw_user_error("{}: key \"{}\" must be a list of layers, whole numbers from 0 up", config.where(),
                       key);
    layers.push_back(layer.get<std::uint32_t>());
  }
  return layers;
}

// The id of a marker token, none where the config does not say.
std::vector<std::uint32_t> marker(const ConfigReader& root, const char* key) {
  if (!root.has(key)) return {};
  return {root.number(key, 0, kMostPixels)};
}

void read_qwen_markers(const ConfigReader& root, VisionConfig& vision) {
  vision.markers_before = vision.markers_after = 1;  // <|vision_start|>, <|vision_end|>
  vision.marker_ids_before = marker(root, "vision_start_token_id");
  vision.marker_ids_after = marker(root, "vision_end_token_id");
}

void read_qwen2_5(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kSmartResize;
  vision.num_layers = config.number_or("depth", 32);
  vision.hidden_size = config.number_or("hidden_size", 3584);
  // Rounded up for the kernels (Qwen2_5_VisionTransformer).
  vision.mlp_width = config.number_or("intermediate_size", 3420);
  vision.intermediate_size = (vision.mlp_width + 7) / 8 * 8;
  vision.hidden_act = config.text("hidden_act", "silu");
  vision.num_heads = config.number_or("num_heads", 16);
  vision.patch_size = side(config, "patch_size", 14);
  vision.temporal_patch = config.number_or("temporal_patch_size", 2);
  vision.merge_size = config.number_or("spatial_merge_size", 2);
  vision.window_size = config.number_or("window_size", 112);
  vision.full_attention_at = layers_of(config, "fullatt_block_indexes", {7, 15, 23, 31});
  vision.full_attention_layers = static_cast<std::uint32_t>(vision.full_attention_at.size());
  vision.gated_mlp = vision.rotary = vision.flat = true;
  vision.min_pixels = 56 * 56;
  vision.max_pixels = 16384 * 28 * 28;  // of the published preprocessor_config.json
  vision.projector_input = vision.hidden_size * vision.merge_size * vision.merge_size;
  vision.projector_hidden = vision.projector_input;
  vision.projector_sharded = vision.data_parallel = true;
  read_qwen_markers(root, vision);
}

void read_qwen3(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kSmartResize;
  vision.num_layers = config.number_or("depth", 27);
  vision.hidden_size = config.number_or("hidden_size", 1152);
  vision.intermediate_size = config.number_or("intermediate_size", 4304);
  vision.num_heads = config.number_or("num_heads", 16);
  vision.patch_size = side(config, "patch_size", 16);
  vision.temporal_patch = config.number_or("temporal_patch_size", 2);
  vision.merge_size = config.number_or("spatial_merge_size", 2);
  vision.mlp_width = vision.intermediate_size;
  vision.hidden_act = config.text("hidden_act", "gelu_pytorch_tanh");
  vision.position_embeddings = config.number_or("num_position_embeddings", 2304);
  vision.deepstack_at = layers_of(config, "deepstack_visual_indexes", {8, 16, 24});
  vision.deepstack = static_cast<std::uint32_t>(vision.deepstack_at.size());
  vision.rotary = vision.flat = vision.sharded_positions = true;
  vision.min_pixels = 65536;  // of the published preprocessor_config.json
  vision.max_pixels = 16777216;
  vision.projector_input = vision.hidden_size * vision.merge_size * vision.merge_size;
  vision.projector_hidden = vision.projector_input;
  vision.projector_sharded = vision.data_parallel = vision.attention_parallel = true;
  read_qwen_markers(root, vision);
}

// An id of the vocabulary, 0 where config.json does not say: Transformers 4 calls it INDEX, 5 also ID.
std::uint32_t token_of(const ConfigReader& root, const char* index, const char* id) {
  const char* const key = root.has(index) ? index : id;
  return root.has(key) ? root.number(key, 0) : 0;
}

// SigLIP; average pooling makes tokens of its patches.
void read_gemma3(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kFixed;
  vision.num_layers = config.number_or("num_hidden_layers", 27);
  vision.hidden_size = config.number_or("hidden_size", 1152);
  vision.intermediate_size = config.number_or("intermediate_size", 4304);
  vision.num_heads = config.number_or("num_attention_heads", 16);
  vision.patch_size = side(config, "patch_size", 14);
  vision.image_size = side(config, "image_size", 896);
  const std::uint32_t tokens = root.number_or("mm_tokens_per_image", 256);
  const std::uint32_t patches = vision.image_size / vision.patch_size;
  while ((patches / (vision.merge_size + 1)) * (patches / (vision.merge_size + 1)) >= tokens)
    ++vision.merge_size;
  const std::uint32_t tokens_of_side = patches / vision.merge_size;
  if (tokens_of_side * tokens_of_side != tokens)
    throw_user_error("{}: mm_tokens_per_image {} is not what squares of {} patches make", root.where(),
                     tokens, patches);
  vision.position_embeddings = patches * patches;
  vision.one_by_one = vision.both_ways = true;
  vision.hidden_act = config.text("hidden_act", "gelu_pytorch_tanh");
  vision.norm_eps = static_cast<float>(config.real("layer_norm_eps", 1e-6, 0, 1));
  vision.projector_input = vision.hidden_size;
  vision.markers_before = vision.markers_after = 2;  // a blank line and <start_of_image>; the same behind it
  constexpr std::uint32_t kBlankLine = 108;          // of Gemma 3's tokenizer
  const std::uint32_t begin = token_of(root, "boi_token_index", "boi_token_id");
  const std::uint32_t end = token_of(root, "eoi_token_index", "eoi_token_id");
  if (begin > 0 && end > 0) {
    vision.marker_ids_before = {kBlankLine, begin};
    vision.marker_ids_after = {end, kBlankLine};
  }
  vision.on_by_default = false;
}

void read_llama4(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kCanvas;
  vision.num_layers = config.number_or("num_hidden_layers", 34);
  vision.hidden_size = config.number_or("hidden_size", 768);
  vision.intermediate_size = config.number_or("intermediate_size", 5632);
  vision.num_heads = config.number_or("num_attention_heads", 16);
  vision.patch_size = side(config, "patch_size", 14);
  vision.image_size = side(config, "image_size", 336);
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
  const std::uint32_t begin = token_of(root, "boi_token_index", "boi_token_id");
  const std::uint32_t patch = token_of(root, "image_token_index", "image_token_id");
  if (begin > 0 && patch == begin + 12) {  // in the order of the published tokenizer
    vision.marker_ids_before = {begin};
    vision.marker_ids_after = {begin + 1};
    vision.tile_column_id = begin + 4;
    vision.tile_row_id = begin + 5;
    vision.small_copy_id = begin + 10;
  }
  vision.rope_theta = config.real("rope_theta", 10000, 1, 1e12);
  if (config.has("rope_parameters") && config.json()["rope_parameters"].is_object())
    vision.rope_theta = ConfigReader(config.json()["rope_parameters"], config.where() + ": rope_parameters")
                            .real("rope_theta", vision.rope_theta, 1, 1e12);
  vision.on_by_default = false;
}

// The layers up to the one whose result is read: -1 is the last.
std::uint32_t chosen_layers(const ConfigReader& root, std::uint32_t num_layers) {
  const char* const key = root.has("select_layer") ? "select_layer" : "vision_feature_layer";
  if (!root.has(key)) return num_layers;
  const Json& value = root.json()[key];
  const double layer = value.is_number_integer() ? value.get<double>() : 0;
  const double from_start = layer < 0 ? num_layers + 1 + layer : layer;
  if (!(from_start >= 1) || from_start > num_layers)
    throw_user_error("{}: key \"{}\" must be a layer from 1 to {}, or from -1 back", root.where(), key,
                     num_layers);
  return static_cast<std::uint32_t>(from_start);
}

void read_internvl(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kClosestRatio;
  vision.num_layers = config.number_or("num_hidden_layers", 24);
  vision.hidden_size = config.number_or("hidden_size", 1024);
  vision.intermediate_size = config.number_or("intermediate_size", 4096);
  vision.num_heads = config.number_or("num_attention_heads", 16);
  vision.patch_size = side(config, "patch_size", 14);
  vision.image_size = root.number_or("force_image_size", side(config, "image_size", 448));
  vision.max_tiles = 12;  // IMAGE_MAX_NUM of SGLang's processor
  vision.merge_size = static_cast<std::uint32_t>(1 / root.real("downsample_ratio", 0.5, 1.0 / 64, 1) + 0.5);
  vision.position_embeddings =
      (vision.image_size / vision.patch_size) * (vision.image_size / vision.patch_size) + 1;
  vision.class_token = vision.layer_scale = true;
  vision.qk_norm = config.flag("qk_normalization", config.flag("use_qk_norm", false));
  // The defaults of Transformers' configuration; OpenGVLab's checkpoints name all of it.
  vision.qkv_bias = config.flag("qkv_bias", config.flag("attention_bias", false));
  vision.rms_norm = config.text("norm_type", "layer_norm") == "rms_norm";
  vision.norm_eps = static_cast<float>(config.real("layer_norm_eps", 1e-6, 0, 1));
  vision.hidden_act = config.text("hidden_act", "gelu");
  vision.transposed_shuffle = root.text("ps_version", "v2") == "v1";
  vision.computed_layers = chosen_layers(root, vision.num_layers);
  if (const std::string rows = root.text("vision_feature_select_strategy", "default"); rows != "default")
    throw_user_error("{}: vision_feature_select_strategy \"{}\" is not simulated; \"default\" is",
                     root.where(), rows.substr(0, 40));
  vision.projector_input = vision.hidden_size * vision.merge_size * vision.merge_size;
  vision.projector_hidden = vision.out_hidden_size;
  vision.data_parallel = true;
  vision.markers_before = vision.markers_after = 1;  // <img>, </img>
}

void check(const VisionConfig& vision, const std::string& where) {
  if (vision.hidden_size % vision.num_heads != 0)
    throw_user_error("{}: vision_config's heads ({}) do not divide its hidden_size {}", where,
                     vision.num_heads, vision.hidden_size);
  if (vision.head_dim() > 256)
    throw_user_error("{}: vision_config's heads are {} wide; at most 256 are simulated", where,
                     vision.head_dim());
  if (vision.image_size > 0 && (vision.image_size / vision.patch_size) % vision.merge_size != 0)
    throw_user_error("{}: {} patches of a side are not whole groups of {}", where,
                     vision.image_size / vision.patch_size, vision.merge_size);
  if (vision.window_size > 0 && vision.window_size / vision.merge_size / vision.patch_size == 0)
    throw_user_error("{}: window_size {} is less than a merged patch", where, vision.window_size);
  if (vision.full_attention_layers > vision.num_layers)
    throw_user_error("{}: vision_config has {} layers and {} with full attention", where, vision.num_layers,
                     vision.full_attention_layers);
}

}  // namespace

VisionConfig read_vision(const Json& json, const std::string& where, std::string_view architecture,
                         std::uint32_t text_hidden_size) {
  VisionConfig vision;
  if (!json.contains("vision_config") || !json["vision_config"].is_object()) return vision;
  const std::string of = where + ": vision_config";
  const ConfigReader root(json, where);
  const ConfigReader config(json["vision_config"], of);
  vision.architecture = architecture;
  vision.out_hidden_size = text_hidden_size;
  if (architecture == "Qwen2_5_VLForConditionalGeneration") {
    read_qwen2_5(root, config, vision);
  } else if (architecture == "Qwen3VLForConditionalGeneration" ||
             architecture == "Qwen3VLMoeForConditionalGeneration") {
    read_qwen3(root, config, vision);
  } else if (architecture == "Gemma3ForConditionalGeneration") {
    read_gemma3(root, config, vision);
  } else if (architecture == "Llama4ForConditionalGeneration") {
    read_llama4(root, config, vision);
  } else if (architecture == "InternVLChatModel" || architecture == "InternVLForConditionalGeneration") {
    read_internvl(root, config, vision);
  } else {
    return {};
  }
  check(vision, of);
  return vision;
}

void read_added_tokens(const Json& json, VisionConfig& vision) {
  if (vision.rule != ImageRule::kClosestRatio || !json.is_object()) return;
  const auto id = [&json](const char* name) {
    return json.contains(name) && json[name].is_number_unsigned() ? json[name].get<std::uint32_t>() : 0;
  };
  if (id("<img>") == 0 || id("</img>") == 0) return;
  vision.marker_ids_before = {id("<img>")};
  vision.marker_ids_after = {id("</img>")};
}

void read_preprocessor(const ConfigReader& config, VisionConfig& vision) {
  if (vision.rule == ImageRule::kCanvas) vision.max_tiles = config.number_or("max_patches", vision.max_tiles);
  if (vision.rule != ImageRule::kSmartResize) return;
  constexpr std::uint32_t kMost = 1U << 30;
  if (config.has("min_pixels")) vision.min_pixels = config.number("min_pixels", 1, kMost);
  if (config.has("max_pixels")) vision.max_pixels = config.number("max_pixels", 1, kMost);
  if (!config.has("size") || !config.json()["size"].is_object()) return;
  const ConfigReader size(config.json()["size"], config.where() + ": size");
  if (size.has("shortest_edge")) vision.min_pixels = size.number("shortest_edge", 1, kMost);
  if (size.has("longest_edge")) vision.max_pixels = size.number("longest_edge", 1, kMost);
}

}  // namespace tpsim::rank
