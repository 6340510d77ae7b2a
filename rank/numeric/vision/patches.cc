#include "rank/numeric/vision/patches.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "proto/base/random.h"

namespace tpsim::rank {

std::uint64_t image_seed(std::uint64_t content, std::uint32_t width, std::uint32_t height) {
  return (content * kGoldenGamma) ^ (std::uint64_t{width} << 32 | height);
}

ImagePixels make_pixels(const ImageLayout& layout, std::uint64_t seed) {
  ImagePixels pixels;
  pixels.tiles = layout.tiles;
  pixels.height = layout.height;
  pixels.width = layout.width;
  pixels.values.resize(std::size_t{3} * layout.tiles * layout.height * layout.width);
  for (std::size_t i = 0; i < pixels.values.size(); ++i) {
    const auto bits = static_cast<float>(mix64(seed + (i + 1) * kGoldenGamma) >> 40);
    pixels.values[i] = bits / static_cast<float>(1 << 23) - 1;
  }
  return pixels;
}

std::vector<float> square_patches(const ImagePixels& pixels, std::uint32_t patch) {
  const std::uint32_t rows = pixels.height / patch;
  const std::uint32_t columns = pixels.width / patch;
  const std::size_t size = std::size_t{3} * patch * patch;
  std::vector<float> out(size * pixels.tiles * rows * columns);
  float* to = out.data();
  for (std::uint32_t tile = 0; tile < pixels.tiles; ++tile) {
    for (std::uint32_t place = 0; place < rows * columns; ++place) {
      const std::size_t corner =
          std::size_t{place / columns} * patch * pixels.width + std::size_t{place % columns} * patch;
      for (std::uint32_t channel = 0; channel < 3; ++channel) {
        const float* const plane = pixels.plane(tile, channel) + corner;
        for (std::uint32_t y = 0; y < patch; ++y, to += patch)
          std::memcpy(to, plane + std::size_t{y} * pixels.width, patch * sizeof(float));
      }
    }
  }
  return out;
}

std::vector<float> merge_squares(const float* x, std::uint32_t tiles, std::uint32_t side, std::uint32_t merge,
                                 std::uint32_t size, bool transposed) {
  const std::uint32_t merged = side / merge;
  std::vector<float> out(std::size_t{tiles} * merged * merged * merge * merge * size);
  float* to = out.data();
  for (std::uint32_t tile = 0; tile < tiles; ++tile) {
    for (std::uint32_t place = 0; place < merged * merged; ++place) {
      const std::uint32_t row = transposed ? place % merged : place / merged;
      const std::uint32_t column = transposed ? place / merged : place % merged;
      for (std::uint32_t y = 0; y < merge; ++y) {
        const std::size_t from =
            (std::size_t{tile} * side + row * merge + y) * side + std::size_t{column} * merge;
        std::memcpy(to, x + from * size, std::size_t{merge} * size * sizeof(float));
        to += std::size_t{merge} * size;
      }
    }
  }
  return out;
}

PatchGrid::PatchGrid(const VisionConfig& vision, const ImageLayout& layout)
    : merge(vision.merge_size),
      rows(layout.height / vision.patch_size),
      columns(layout.width / vision.patch_size) {}

std::uint32_t PatchGrid::row_of(std::uint32_t patch) const {
  return patch / (merge * columns) * merge + patch / merge % merge;
}

std::uint32_t PatchGrid::column_of(std::uint32_t patch) const {
  return patch / (merge * merge) % (columns / merge) * merge + patch % merge;
}

std::vector<float> patch_rows(const VisionConfig& vision, const PatchGrid& grid, const ImagePixels& pixels) {
  const std::uint32_t side = vision.patch_size;
  std::vector<float> out(std::size_t{3} * vision.temporal_patch * side * side * grid.patches());
  float* to = out.data();
  for (std::uint32_t patch = 0; patch < grid.patches(); ++patch) {
    const std::size_t top = std::size_t{grid.row_of(patch)} * side;
    const std::size_t left = std::size_t{grid.column_of(patch)} * side;
    for (std::uint32_t channel = 0; channel < 3; ++channel) {
      const float* const plane = pixels.plane(0, channel);
      for (std::uint32_t frame = 0; frame < vision.temporal_patch; ++frame) {
        for (std::uint32_t y = 0; y < side; ++y, to += side)
          std::copy_n(plane + (top + y) * pixels.width + left, side, to);
      }
    }
  }
  return out;
}

AxialRope::AxialRope(const PatchGrid& grid, std::uint32_t dim)
    : half_(dim / 2), cos_(std::size_t{grid.patches()} * half_), sin_(std::size_t{grid.patches()} * half_) {
  constexpr double kTheta = 10000;
  const std::uint32_t quarter = half_ / 2;
  for (std::uint32_t patch = 0; patch < grid.patches(); ++patch) {
    for (std::uint32_t i = 0; i < half_; ++i) {
      const std::uint32_t at = i < quarter ? grid.row_of(patch) : grid.column_of(patch);
      const double angle = at * std::pow(kTheta, -2.0 * (i % quarter) / half_);
      cos_[std::size_t{patch} * half_ + i] = static_cast<float>(std::cos(angle));
      sin_[std::size_t{patch} * half_ + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void AxialRope::turn(std::uint32_t patch, float* head) const {
  const float* const cos = cos_.data() + std::size_t{patch} * half_;
  const float* const sin = sin_.data() + std::size_t{patch} * half_;
  for (std::uint32_t i = 0; i < half_; ++i) {
    const float a = head[i];
    const float b = head[half_ + i];
    head[i] = a * cos[i] - b * sin[i];
    head[half_ + i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace tpsim::rank
