#include "attention/diffusion/grid.h"

#include "proto/base/ceil_div.h"

namespace tpsim::attention {

double grid_tokens(const GridSize& grid) { return double(grid[0]) * grid[1] * grid[2]; }

GridSize tiles_of(const GridSize& grid, const GridSize& tile) {
  GridSize tiles{};
  for (std::size_t side = 0; side < 3; ++side) tiles[side] = ceil_div(grid[side], tile[side]);
  return tiles;
}

GridSize grid_of(const DiffusionCall& call) {
  if (grid_tokens(call.grid) > 0) return call.grid;
  return {1, 1, static_cast<std::uint32_t>(call.queries)};
}

}  // namespace tpsim::attention
