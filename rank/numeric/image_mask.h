// Gemma 3's attention among the tokens of an image, as SGLang serves it.
//
// The model's tokens of one image see each other, later ones, too; text and other images are causal. In
// SGLang (0.5.12 and 0.5.23, Gemma3ForConditionalGeneration.prepare_attn_masks) that is so under the triton
// backend alone, in passes that extend and do nothing else, and for images that begin in the pass: what is
// left of one that a chunk or a cached prefix cuts is causal. And the kernel's loop over the new tokens ends
// with its tile of queries (extend_attention.py: cur_block_m_end), so that later tokens are seen in the own
// tile only. Where an image lies in one tile of a pass this is what Transformers computes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// Of each of a request's `q_len` new tokens, the end of what it sees (at least its own position + 1). `tile`:
// query tokens of a tile of the kernel. `images`: of the request, in order.
std::vector<std::uint32_t> image_sight(std::span<const BatchImage> images, std::uint32_t prefix,
                                       std::uint32_t q_len, std::uint32_t tile);

// The mask [q_len, prefix + q_len] of that, as far as a window (0: none) reaches back; empty where it is the
// causal one.
std::vector<std::uint8_t> image_mask(std::span<const BatchImage> images, std::uint32_t prefix,
                                     std::uint32_t q_len, std::uint32_t tile, std::uint32_t window);

// Where the tokens of a prompt with images stand, for models whose rotation has three positions (Qwen-VL):
// time, row and column.
//
// Text moves on by one in all three. The tokens of an image have the time at which it begins, and its rows
// and columns counted from there; what follows begins after its longer side (get_rope_index of Transformers'
// modeling_qwen2_5_vl.py and modeling_qwen3_vl.py; one frame, whatever the video rules).

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
