// InternVL: an encoder of its own before a text model of another family, which its config describes apart.
#include <array>
#include <string>

#include "rank/config/config_parts.h"
#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

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

void read_internvl_vision(const ConfigReader& root, const ConfigReader& config, VisionConfig& vision) {
  vision.rule = ImageRule::kClosestRatio;
  vision.num_layers = config.number_or("num_hidden_layers", 24);
  vision.hidden_size = config.number_or("hidden_size", 1024);
  vision.intermediate_size = config.number_or("intermediate_size", 4096);
  vision.num_heads = config.number_or("num_attention_heads", 16);
  vision.patch_size = read_side(config, "patch_size", 14);
  vision.image_size = root.number_or("force_image_size", read_side(config, "image_size", 448));
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

constexpr std::array<VisionArchitecture, 2> kInternvlVision = {{
    {.name = "InternVLChatModel", .read = read_internvl_vision},
    {.name = "InternVLForConditionalGeneration", .read = read_internvl_vision, .text_key = "text_config"},
}};

}  // namespace

extern const ModelFamily kInternvlFamily;
const ModelFamily kInternvlFamily = {.architectures = {}, .read = nullptr, .vision = kInternvlVision};

}  // namespace tpsim::rank
