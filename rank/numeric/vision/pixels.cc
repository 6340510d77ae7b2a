#include "rank/numeric/vision/pixels.h"

#include <cstddef>

namespace tpsim::rank {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;

std::uint64_t splitmix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace

std::uint64_t image_seed(std::uint64_t content, std::uint32_t width, std::uint32_t height) {
  return (content * kGolden) ^ (std::uint64_t{width} << 32 | height);
}

ImagePixels make_pixels(const ImageLayout& layout, std::uint64_t seed) {
  ImagePixels pixels;
  pixels.tiles = layout.tiles;
  pixels.height = layout.height;
  pixels.width = layout.width;
  pixels.values.resize(std::size_t{3} * layout.tiles * layout.height * layout.width);
  for (std::size_t i = 0; i < pixels.values.size(); ++i) {
    const auto bits = static_cast<float>(splitmix64(seed + (i + 1) * kGolden) >> 40);
    pixels.values[i] = bits / static_cast<float>(1 << 23) - 1;
  }
  return pixels;
}

}  // namespace tpsim::rank
