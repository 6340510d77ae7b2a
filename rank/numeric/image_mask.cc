#include "rank/numeric/image_mask.h"

#include <algorithm>
#include <cstddef>

namespace tpsim::rank {

std::vector<std::uint32_t> image_sight(std::span<const BatchImage> images, std::uint32_t prefix,
                                       std::uint32_t q_len, std::uint32_t tile) {
  std::vector<std::uint32_t> ends(q_len);
  for (std::uint32_t k = 0; k < q_len; ++k) ends[k] = prefix + k + 1;
  for (const BatchImage& image : images) {
    if (image.position < prefix) continue;
    const std::uint32_t end = std::min(image.position + image.tokens, prefix + q_len);
    for (std::uint32_t at = image.position; at < end; ++at) {
      const std::uint32_t tile_end = ((at - prefix) / tile + 1) * tile + prefix;
      ends[at - prefix] = std::min(end, tile_end);
    }
  }
  return ends;
}

std::vector<std::uint8_t> image_mask(std::span<const BatchImage> images, std::uint32_t prefix,
                                     std::uint32_t q_len, std::uint32_t tile, std::uint32_t window) {
  const std::vector<std::uint32_t> ends = image_sight(images, prefix, q_len, tile);
  const std::size_t width = std::size_t{prefix} + q_len;
  std::vector<std::uint8_t> mask;
  bool causal = true;
  for (std::uint32_t k = 0; k < q_len; ++k) causal = causal && ends[k] == prefix + k + 1;
  if (causal) return mask;
  mask.assign(q_len * width, 0);
  for (std::uint32_t k = 0; k < q_len; ++k) {
    const std::uint32_t own_end = prefix + k + 1;
    const std::uint32_t begin = window != 0 && own_end > window ? own_end - window : 0;
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(k * width + begin),
              mask.begin() + static_cast<std::ptrdiff_t>(k * width + ends[k]), std::uint8_t{1});
  }
  return mask;
}

}  // namespace tpsim::rank
