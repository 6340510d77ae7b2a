// The file of sliding tile attention: windows in tiles (frames, rows, columns) by step, layer and head, as a
// JSON object with keys "STEP_LAYER_HEAD" and values [5, 6, 10].
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/diffusion/grid.h"

namespace tpsim::attention {

struct MaskStrategy {
  std::string path;
  std::uint32_t steps = 0, layers = 0, heads = 0;
  std::vector<GridSize> windows;  // [step][layer][head]

  // Of the tiles of keys, those that a tile of queries meets, in the mean over the heads: half a window,
  // rounded down, on either side, and moved inwards at the rims, as st_attn's kernel has it
  // (hao-ai-lab/FastVideo csrc/attn/st_attn). Throws UserError where the file has no such step or layer.
  double share(std::uint32_t step, std::uint32_t layer, const GridSize& tiles) const;
};

// Throws UserError naming --attention-backend-config and the file: not readable, no such JSON, gaps.
MaskStrategy read_mask_strategy(const std::string& path);
// The same of a file's text.
MaskStrategy parse_mask_strategy(const std::string& text, const std::string& path);

}  // namespace tpsim::attention
