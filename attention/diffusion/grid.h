// Blocks of a video's grid of tokens.
#pragma once

#include <array>
#include <cstdint>

#include "attention/diffusion/call.h"

namespace tpsim::attention {

using GridSize = std::array<std::uint32_t, 3>;  // latent frames, rows, columns

// Tokens of a grid; 0: there is none.
double grid_tokens(const GridSize& grid);
// Tiles along each side, the last ones smaller.
GridSize tiles_of(const GridSize& grid, const GridSize& tile);
// The call's grid; a call without one is a row of its tokens.
GridSize grid_of(const DiffusionCall& call);

}  // namespace tpsim::attention
