#include "attention/diffusion/mask_strategy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "attention/diffusion/parameters.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

constexpr std::uint32_t kMost = 1000;  // steps, layers, heads; a tile's side
constexpr std::size_t kMostWindows = 1 << 22;
const std::string kWhere = std::string(kDiffusionConfigFlag) + " mask_strategy_file_path";

GridSize window_of(const nlohmann::json& value, const std::string& path, const std::string& key) {
  GridSize window{};
  bool good = value.is_array() && value.size() == 3;
  for (std::size_t side = 0; good && side < 3; ++side) {
    good = value[side].is_number_unsigned() && value[side] >= 1 && value[side] <= kMost;
    if (good) window[side] = value[side].get<std::uint32_t>();
  }
  if (!good)
    throw_user_error(
        "{} {}: the window of {} is not three whole numbers from 1 on (frames, rows and columns in tiles)",
        kWhere, path, in_quotes(key));
  return window;
}

}  // namespace

double MaskStrategy::share(std::uint32_t step, std::uint32_t layer, const GridSize& tiles) const {
  if (step >= steps || layer >= layers)
    throw_user_error("{} {}: has windows of {} steps and {} layers, and step {} of layer {} is asked for",
                     kWhere, path, steps, layers, step + 1, layer + 1);
  double sum = 0;
  for (std::uint32_t head = 0; head < heads; ++head) {
    const GridSize& window = windows[(std::size_t(step) * layers + layer) * heads + head];
    double kept = 1;
    for (std::size_t side = 0; side < 3; ++side)
      kept *= double(std::min(window[side] / 2 * 2 + 1, tiles[side])) / tiles[side];
    sum += kept;
  }
  return sum / heads;
}

MaskStrategy read_mask_strategy(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw_user_error("{} {}: is a folder", kWhere, path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_user_error("{} {}: {}", kWhere, path, std::strerror(errno));
  return parse_mask_strategy({std::istreambuf_iterator<char>(file), {}}, path);
}

MaskStrategy parse_mask_strategy(const std::string& text, const std::string& path) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object() || object.empty())
    throw_user_error("{} {}: is no JSON object of windows by \"STEP_LAYER_HEAD\"", kWhere, path);
  MaskStrategy strategy;
  strategy.path = path;
  std::vector<std::pair<std::array<std::uint32_t, 3>, GridSize>> entries;
  entries.reserve(object.size());
  for (const auto& [key, value] : object.items()) {
    const std::vector<std::string> parts = split_list(key, '_');
    if (parts.size() != 3)
      throw_user_error("{} {}: the key {} is not STEP_LAYER_HEAD", kWhere, path, in_quotes(key));
    std::array<std::uint32_t, 3> at{};
    for (std::size_t part = 0; part < 3; ++part)
      at[part] =
          static_cast<std::uint32_t>(parse_count(kWhere + " " + path + ": key", parts[part], 0, kMost));
    strategy.steps = std::max(strategy.steps, at[0] + 1);
    strategy.layers = std::max(strategy.layers, at[1] + 1);
    strategy.heads = std::max(strategy.heads, at[2] + 1);
    entries.emplace_back(at, window_of(value, path, key));
  }
  const std::size_t places = std::size_t(strategy.steps) * strategy.layers * strategy.heads;
  if (places != entries.size() || places > kMostWindows)
    throw_user_error("{} {}: has {} windows, and {} steps, {} layers and {} heads need {}", kWhere, path,
                     entries.size(), strategy.steps, strategy.layers, strategy.heads, places);
  strategy.windows.resize(places);
  for (const auto& [at, window] : entries)
    strategy.windows[(std::size_t(at[0]) * strategy.layers + at[1]) * strategy.heads + at[2]] = window;
  return strategy;
}

}  // namespace tpsim::attention
