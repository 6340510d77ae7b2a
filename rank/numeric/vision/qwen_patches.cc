#include "rank/numeric/vision/qwen_patches.h"

#include <algorithm>
#include <cmath>

namespace tpsim::rank {

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
