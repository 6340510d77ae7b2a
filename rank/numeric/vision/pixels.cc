#include "rank/numeric/vision/pixels.h"

#include <cstddef>

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

}  // namespace tpsim::rank
