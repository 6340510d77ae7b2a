// Gemma 3's attention among the tokens of an image, as SGLang serves it.
//
// The model's tokens of one image see each other, later ones, too; text and other images are causal. In
// SGLang (0.5.12 and 0.5.23, Gemma3ForConditionalGeneration.prepare_attn_masks) that is so under the triton
// backend alone, in passes that extend and do nothing else, and for images that begin in the pass: what is
// left of one that a chunk or a cached prefix cuts is causal. And the kernel's loop over the new tokens ends
// with its tile of queries (extend_attention.py: cur_block_m_end), so that later tokens are seen in the own
// tile only. Where an image lies in one tile of a pass this is what Transformers computes.
#pragma once

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

}  // namespace tpsim::rank
