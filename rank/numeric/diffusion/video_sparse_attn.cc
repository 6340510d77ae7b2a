// Video sparse attention: tokens in tiles of 4 x 4 x 4, smaller at the rims. Means of queries and keys of the
// tiles score each other; a tile of queries meets the ceil((1 - sparsity) tiles) tiles of keys that score
// highest. The coarse branch, which trained gates weigh, is left out: checkpoints of Diffusers have no gates
// (SGLang's begin as zeros).
//
// Sources: arXiv 2505.13389; SGLang 0.5.23 backends/video_sparse_attn.py (tiles, top k).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/head_attention.h"

namespace tpsim::rank {
namespace {

using attention::GridSize;
constexpr GridSize kTile = {4, 4, 4};

std::vector<std::uint32_t> tiles_of_tokens(const GridSize& grid, const GridSize& tiles) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t frame = 0; frame < grid[0]; ++frame) {
    for (std::uint32_t row = 0; row < grid[1]; ++row) {
      for (std::uint32_t column = 0; column < grid[2]; ++column)
        out.push_back((frame / kTile[0] * tiles[1] + row / kTile[1]) * tiles[2] + column / kTile[2]);
    }
  }
  return out;
}

std::vector<float> means(const HeadRows& from, std::uint32_t dim, const std::vector<std::uint32_t>& tile_of,
                         std::uint32_t tiles) {
  std::vector<float> out(std::size_t{tiles} * dim);
  std::vector<std::uint32_t> counts(tiles);
  for (std::uint32_t i = 0; i < from.count; ++i) {
    add(out.data() + std::size_t{tile_of[i]} * dim, from.row(i), dim);
    ++counts[tile_of[i]];
  }
  for (std::uint32_t tile = 0; tile < tiles; ++tile)
    scale(out.data() + std::size_t{tile} * dim, dim, 1 / static_cast<float>(counts[tile]));
  return out;
}

void attend_video_sparse(const HeadCall& call, const attention::DiffusionParameters& parameters, float* out,
                         KeptPairs& pairs) {
  const std::uint32_t dim = call.dim, tokens = call.k.count;
  const GridSize grid_tiles = attention::tiles_of(call.grid, kTile);
  const std::uint32_t tiles = grid_tiles[0] * grid_tiles[1] * grid_tiles[2];
  const std::vector<std::uint32_t> tile_of = tiles_of_tokens(call.grid, grid_tiles);
  const std::vector<float> q = means(call.q, dim, tile_of, tiles), k = means(call.k, dim, tile_of, tiles);
  const double wanted = std::ceil((1 - attention::real_parameter(parameters, "sparsity")) * tiles);
  const auto kept = static_cast<std::uint32_t>(std::clamp(wanted, 1.0, static_cast<double>(tiles)));

  std::vector<std::uint8_t> meets(std::size_t{tiles} * tiles);
  std::vector<float> scores(tiles);
  std::vector<std::uint32_t> order(tiles);
  for (std::uint32_t from = 0; from < tiles; ++from) {
    for (std::uint32_t to = 0; to < tiles; ++to)
      scores[to] = dot(q.data() + std::size_t{from} * dim, k.data() + std::size_t{to} * dim, dim);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
    for (std::uint32_t i = 0; i < kept; ++i) meets[std::size_t{from} * tiles + order[i]] = 1;
  }
  std::vector<std::uint8_t> keeps(std::size_t{tokens} * tokens);
  for (std::uint32_t a = 0; a < tokens; ++a) {
    for (std::uint32_t b = 0; b < tokens; ++b)
      keeps[std::size_t{a} * tokens + b] = meets[std::size_t{tile_of[a]} * tiles + tile_of[b]];
  }
  pairs.all += keeps.size();
  pairs.kept += std::accumulate(keeps.begin(), keeps.end(), std::uint64_t{0});
  attention::SoftmaxPart part;
  dense_part(call, keeps, part);
  divide(part, out);
}

}  // namespace

extern const HeadBackend kVideoSparseHead;
const HeadBackend kVideoSparseHead = {.name = "video_sparse_attn", .attend = attend_video_sparse};

}  // namespace tpsim::rank
