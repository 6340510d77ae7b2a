// The pixels of images whose workload names a size and a content and no picture: made from the content, so
// that equal images are equal everywhere.
//
// Values are those behind the model's processor: resized, rescaled, normalised. Element i of an image,
// counted in [tiles, 3, height, width], is
//     2 * (splitmix64(seed + (i + 1) * 0x9e3779b97f4a7c15) >> 40) / 2^24 - 1
// which fp32 holds exactly; splitmix64(z) is Steele, Lea and Flood's finaliser (z ^= z >> 30, times
// 0xbf58476d1ce4e5b9, z ^= z >> 27, times 0x94d049bb133111eb, z ^= z >> 31), and seed = image_seed().
// tests/references/make_vision_references.py makes the same ones.
#pragma once

#include <cstdint>
#include <vector>

#include "rank/config/image_layout.h"

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

}  // namespace tpsim::rank
