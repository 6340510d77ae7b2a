// What the encoders of Qwen2.5-VL and Qwen3-VL share: patches in blocks of those that merge into one token,
// and the rotation of queries and keys by row and column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rank/config/image_layout.h"
#include "rank/config/vision_config.h"
#include "rank/numeric/vision/pixels.h"

namespace tpsim::rank {

// The grid of an image's patches. Patches are numbered block by block, blocks row by row, and within a block
// of merge_size x merge_size again row by row.
struct PatchGrid {
  PatchGrid(const VisionConfig& vision, const ImageLayout& layout);

  std::uint32_t patches() const { return rows * columns; }
  std::uint32_t row_of(std::uint32_t patch) const;
  std::uint32_t column_of(std::uint32_t patch) const;

  std::uint32_t merge = 1;
  std::uint32_t rows = 0, columns = 0;
};

// [patches, 3 x temporal_patch x patch_size x patch_size]: what a patch's convolution sees, the frames of an
// image being equal.
std::vector<float> patch_rows(const VisionConfig& vision, const PatchGrid& grid, const ImagePixels& pixels);

// Rotates a head of `dim` elements: the first half of the pairs by the row of the patch, the other by its
// column.
class AxialRope {
 public:
  AxialRope(const PatchGrid& grid, std::uint32_t dim);
  void turn(std::uint32_t patch, float* head) const;

 private:
  std::uint32_t half_;
  std::vector<float> cos_, sin_;  // [patches, dim / 2]
};

}  // namespace tpsim::rank
