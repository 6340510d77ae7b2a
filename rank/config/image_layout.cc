#include "rank/config/image_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

struct Size {
  std::uint64_t height = 0, width = 0;
};

// Python's round(): halves go to the even neighbour, as in C's default rounding.
std::uint64_t rounded(double value, double factor) {
  return static_cast<std::uint64_t>(std::nearbyint(value / factor) * factor);
}

Size smart_resize(const VisionConfig& vision, double height, double width) {
  constexpr double kMostRatio = 200;
  if (std::max(height, width) / std::min(height, width) > kMostRatio)
    throw_user_error(
        "an image of {}x{} pixels: its sides differ by more than a factor of {}, which the model refuses",
        width, height, kMostRatio);
  const double factor = double(vision.patch_size) * vision.merge_size;
  Size size{rounded(height, factor), rounded(width, factor)};
  const auto cut = [factor](double side) {
    return static_cast<std::uint64_t>(std::max(factor, std::floor(side / factor) * factor));
  };
  const auto grown = [factor](double side) {
    return static_cast<std::uint64_t>(std::ceil(side / factor) * factor);
  };
  if (size.height * size.width > vision.max_pixels) {
    const double beta = std::sqrt(height * width / static_cast<double>(vision.max_pixels));
    size = {cut(height / beta), cut(width / beta)};
  } else if (size.height * size.width < vision.min_pixels) {
    const double beta = std::sqrt(static_cast<double>(vision.min_pixels) / (height * width));
    size = {grown(height * beta), grown(width * beta)};
  }
  return size;
}

void add(std::vector<attention::SequenceGroup>& groups, std::uint64_t length, std::uint64_t count) {
  if (length > 0 && count > 0)
    groups.push_back({static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(count)});
}

ImageLayout resized(const VisionConfig& vision, std::uint32_t width, std::uint32_t height) {
  const Size size = smart_resize(vision, height, width);
  const std::uint64_t factor = std::uint64_t{vision.patch_size} * vision.merge_size;
  const std::uint64_t rows = size.height / factor;  // of merged patches
  const std::uint64_t columns = size.width / factor;
  const std::uint64_t unit = std::uint64_t{vision.merge_size} * vision.merge_size;
  ImageLayout layout;
  layout.height = static_cast<std::uint32_t>(size.height);
  layout.width = static_cast<std::uint32_t>(size.width);
  layout.tokens = layout.embedded = static_cast<std::uint32_t>(rows * columns);
  layout.patches = static_cast<std::uint32_t>(rows * columns * unit);
  add(layout.sequences, layout.patches, 1);
  if (vision.window_size == 0) return layout;
  // get_window_index: windows of so many merged patches, cut off at the right and lower edge.
  const std::uint64_t side = vision.window_size / factor;
  const std::uint64_t rest_rows = rows % side;
  const std::uint64_t rest_columns = columns % side;
  add(layout.windows, side * side * unit, (rows / side) * (columns / side));
  add(layout.windows, rest_rows * side * unit, columns / side);
  add(layout.windows, side * rest_columns * unit, rows / side);
  add(layout.windows, rest_rows * rest_columns * unit, 1);
  return layout;
}

// `tiles` squares of image_size.
ImageLayout tiled(const VisionConfig& vision, std::uint32_t tiles) {
  const std::uint32_t side = vision.image_size / vision.patch_size;
  const std::uint32_t merged = side / vision.merge_size;
  ImageLayout layout;
  layout.tiles = tiles;
  layout.height = layout.width = vision.image_size;
  const std::uint32_t length = side * side + (vision.class_token ? 1 : 0);
  layout.patches = length * tiles;
  layout.tokens = layout.embedded = merged * merged * tiles;
  add(layout.sequences, length, tiles);
  return layout;
}

// Tiles without the thumbnail: the grid whose aspect ratio is nearest, and of equals the largest.
std::uint32_t closest_ratio_tiles(const VisionConfig& vision, double width, double height) {
  const double ratio = width / height;
  double best = std::numeric_limits<double>::infinity();
  std::uint32_t tiles = 1;
  for (std::uint32_t blocks = 1; blocks <= vision.max_tiles; ++blocks) {
    for (std::uint32_t columns = 1; columns <= blocks; ++columns) {
      if (blocks % columns != 0) continue;
      const double difference = std::abs(ratio - double(columns) / (blocks / columns));
      if (difference > best || (difference == best && blocks <= tiles)) continue;
      best = difference;
      tiles = blocks;
    }
  }
  return tiles;
}

// get_best_fit: the grid (rows, columns) that enlarges least, else shrinks least; of equals the smallest. In
// the processor's fp32.
std::pair<std::uint32_t, std::uint32_t> best_canvas(const VisionConfig& vision, float width, float height) {
  const auto side = static_cast<float>(vision.image_size);
  std::tuple<bool, float, std::uint32_t> best{};
  std::pair<std::uint32_t, std::uint32_t> canvas{0, 0};
  for (std::uint32_t rows = 1; rows <= vision.max_tiles; ++rows) {
    for (std::uint32_t columns = 1; rows * columns <= vision.max_tiles; ++columns) {
      const float scale =
          std::min(static_cast<float>(columns) * side / width, static_cast<float>(rows) * side / height);
      const bool enlarges = scale >= 1;
      // Enlarging comes before shrinking; then the scale nearest to 1; then fewer tiles.
      const std::tuple<bool, float, std::uint32_t> rank{!enlarges, enlarges ? scale : -scale, rows * columns};
      if (canvas.first != 0 && !(rank < best)) continue;
      best = rank;
      canvas = {rows, columns};
    }
  }
  return canvas;
}

ImageLayout on_canvas(const VisionConfig& vision, std::uint32_t width, std::uint32_t height) {
  const auto [rows, columns] = best_canvas(vision, static_cast<float>(width), static_cast<float>(height));
  const std::uint32_t grid = rows * columns;
  ImageLayout layout = tiled(vision, grid > 1 ? grid + 1 : 1);
  layout.grid_columns = columns;
  // <|tile_x_separator|> between the tiles of a row, <|tile_y_separator|> after it, <|image|> before the
  // last.
  layout.tokens += 1 + (grid > 1 ? rows * (columns - 1) + rows : 0);
  return layout;
}

}  // namespace

ImageLayout image_layout(const VisionConfig& vision, std::uint32_t width, std::uint32_t height) {
  ImageLayout layout;
  switch (vision.rule) {
    case ImageRule::kSmartResize:
      layout = resized(vision, width, height);
      break;
    case ImageRule::kFixed:
      layout = tiled(vision, 1);
      break;
    case ImageRule::kClosestRatio: {
      const std::uint32_t tiles = closest_ratio_tiles(vision, width, height);
      layout = tiled(vision, tiles > 1 ? tiles + 1 : 1);
      break;
    }
    case ImageRule::kCanvas:
      layout = on_canvas(vision, width, height);
      break;
  }
  layout.before = vision.markers_before;
  layout.after = vision.markers_after;
  return layout;
}

}  // namespace tpsim::rank
