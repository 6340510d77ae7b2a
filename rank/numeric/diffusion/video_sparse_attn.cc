// Video sparse attention: tokens in tiles of 4 x 4 x 4, smaller at the rims. Means of queries and keys of the
// tiles score each other; a tile of queries meets the ceil((1 - sparsity) tiles) tiles of keys that score
// highest. The coarse branch, which trained gates weigh, is left out: checkpoints of Diffusers have no gates
// (SGLang's begin as zeros).
//
// Sources: arXiv 2505.13389; SGLang 0.5.23 backends/video_sparse_attn.py (tiles, top k).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "rank/numeric/diffusion/head_attention.h"
#include "rank/numeric/diffusion/key_blocks.h"

namespace tpsim::rank {
namespace {

using attention::GridSize;
constexpr GridSize kTile = {4, 4, 4};

std::vector<std::uint8_t> select_video_sparse(const HeadCall& call,
                                              const attention::DiffusionParameters& parameters) {
  const std::uint32_t dim = call.dim;
  const GridSize grid_tiles = attention::tiles_of(call.grid, kTile);
  const std::uint32_t tiles = grid_tiles[0] * grid_tiles[1] * grid_tiles[2];
  const std::vector<std::uint32_t> tile_of = blocks_of_tokens(call.grid, kTile);
  const std::vector<float> q = block_means(call.q, dim, tile_of), k = block_means(call.k, dim, tile_of);
  const double wanted = std::ceil((1 - attention::real_parameter(parameters, "sparsity")) * tiles);
  const auto kept = static_cast<std::uint32_t>(std::clamp(wanted, 1.0, static_cast<double>(tiles)));

  std::vector<std::uint8_t> meets(std::size_t{tiles} * tiles);
  for (std::uint32_t from = 0; from < tiles; ++from) {
    const std::vector<std::uint32_t> order = by_value(dots(q.data() + std::size_t{from} * dim, k, dim));
    for (std::uint32_t i = 0; i < kept; ++i) meets[std::size_t{from} * tiles + order[i]] = 1;
  }
  return pairs_of_blocks(meets, tile_of, tile_of);
}

}  // namespace

extern const HeadBackend kVideoSparseHead;
const HeadBackend kVideoSparseHead = {.name = "video_sparse_attn", .select = select_video_sparse};

}  // namespace tpsim::rank
