// Parts of vision encoders' configs that families share, and what no family has of its own.
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/error.h"
#include "rank/config/config_parts.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kMostPixels = 1U << 28;

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

std::uint32_t read_side(const ConfigReader& config, const char* key, std::uint32_t otherwise) {
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

std::vector<std::uint32_t> read_marker(const ConfigReader& root, const char* key) {
  if (!root.has(key)) return {};
  return {root.number(key, 0, kMostPixels)};
}

std::uint32_t read_token(const ConfigReader& root, const char* index, const char* id) {
  const char* const key = root.has(index) ? index : id;
  return root.has(key) ? root.number(key, 0) : 0;
}

VisionConfig read_vision(const Json& json, const std::string& where, std::string_view architecture,
                         VisionReader read, std::uint32_t text_hidden_size) {
  VisionConfig vision;
  if (read == nullptr || !json.contains("vision_config") || !json["vision_config"].is_object()) return vision;
  const std::string of = where + ": vision_config";
  const ConfigReader root(json, where);
  const ConfigReader config(json["vision_config"], of);
  vision.architecture = architecture;
  vision.out_hidden_size = text_hidden_size;
  read(root, config, vision);
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
