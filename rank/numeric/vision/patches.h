// From pixels to rows of patches. A workload names an image's size and content and no picture: pixels are
// made from the content, so that equal images are equal everywhere.
//
// Values are what the model's processor makes: resized, rescaled, normalised. Element i of an image,
// counted in [tiles, 3, height, width], is
//     2 * (splitmix64(seed + (i + 1) * 0x9e3779b97f4a7c15) >> 40) / 2^24 - 1
// which fp32 holds exactly; splitmix64(z) is Steele, Lea and Flood's finaliser (z ^= z >> 30, times
// 0xbf58476d1ce4e5b9, z ^= z >> 27, times 0x94d049bb133111eb, z ^= z >> 31), and seed = image_seed().
// tests/references/make_vision_references.py makes the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rank/config/image_layout.h"
#include "rank/config/vision_config.h"

namespace tpsim::rank {

struct ImagePixels {
  std::uint32_t tiles = 1;              // squares of a tiled image, a thumbnail last; else 1
  std::uint32_t height = 0, width = 0;  // of a tile, as the encoder sees it
  std::vector<float> values;            // [tiles, 3, height, width]
  const float* plane(std::uint32_t tile, std::uint32_t channel) const {
    return values.data() + (std::size_t{tile} * 3 + channel) * height * width;
  }
};

// content * 0x9e3779b97f4a7c15 ^ (width << 32 | height), in pixels of the image as it was sent.
std::uint64_t image_seed(std::uint64_t content, std::uint32_t width, std::uint32_t height);
// `layout`: image_layout() of an image with this seed.
ImagePixels make_pixels(const ImageLayout& layout, std::uint64_t seed);

// Patches of all tiles, row by row: [tiles x patches, 3 x patch x patch], channels first, as a convolution
// whose stride is its kernel reads them.
std::vector<float> square_patches(const ImagePixels& pixels, std::uint32_t patch);

// x [tiles, side x side, size]: squares of `merge` x `merge` rows become one, rows of the square after each
// other: [tiles, (side / merge)^2, merge x merge x size]. `transposed`: squares come column by column
// (ps_version v1 of InternVL).
std::vector<float> merge_squares(const float* x, std::uint32_t tiles, std::uint32_t side, std::uint32_t merge,
                                 std::uint32_t size, bool transposed);

// The grid of an image's patches in Qwen2.5-VL and Qwen3-VL. Patches are numbered block by block, blocks row
// by row, and within a block of merge_size x merge_size again row by row.
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
