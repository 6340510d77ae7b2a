// Where the tokens of a prompt with images stand, for models whose rotation has three positions (Qwen-VL):
// time, row and column.
//
// Text moves on by one in all three. The tokens of an image have the time at which it begins, and its rows
// and columns counted from there; what follows begins behind its longer side (get_rope_index of Transformers'
// modeling_qwen2_5_vl.py and modeling_qwen3_vl.py; one frame, whatever the video rules).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tpsim::rank {

// An image in a sequence, as merged patches.
struct ImageSpan {
  std::uint32_t position = 0;  // of its first token
  std::uint32_t rows = 0, columns = 0;
};

// Of the token at `place` of the sequence. `images`: those that begin before it, in order, at least.
inline std::array<std::uint32_t, 3> image_position(std::span<const ImageSpan> images, std::uint32_t place) {
  std::uint32_t skipped = 0;  // tokens that took no time
  for (const ImageSpan& image : images) {
    if (place < image.position) break;
    const std::uint32_t index = place - image.position;
    const std::uint32_t begin = image.position - skipped;
    const std::uint32_t tokens = image.rows * image.columns;
    if (index < tokens) return {begin, begin + index / image.columns, begin + index % image.columns};
    skipped += tokens - (image.rows > image.columns ? image.rows : image.columns);
  }
  return {place - skipped, place - skipped, place - skipped};
}

}  // namespace tpsim::rank
