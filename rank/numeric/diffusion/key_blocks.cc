#include "rank/numeric/diffusion/key_blocks.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "rank/linear/vector_ops.h"

namespace tpsim::rank {

std::vector<std::uint32_t> blocks_of_tokens(const attention::GridSize& grid,
                                            const attention::GridSize& block) {
  const attention::GridSize blocks = attention::tiles_of(grid, block);
  std::vector<std::uint32_t> out;
  for (std::uint32_t frame = 0; frame < grid[0]; ++frame) {
    for (std::uint32_t row = 0; row < grid[1]; ++row) {
      for (std::uint32_t column = 0; column < grid[2]; ++column)
        out.push_back((frame / block[0] * blocks[1] + row / block[1]) * blocks[2] + column / block[2]);
    }
  }
  return out;
}

std::vector<std::uint32_t> blocks_in_a_row(std::uint32_t tokens, std::uint32_t block) {
  return blocks_of_tokens({1, 1, tokens}, {1, 1, block});
}

std::vector<float> block_means(const HeadRows& from, std::uint32_t dim,
                               const std::vector<std::uint32_t>& block_of) {
  const std::size_t blocks = *std::ranges::max_element(block_of) + 1;
  std::vector<float> out(blocks * dim);
  std::vector<std::uint32_t> counts(blocks);
  for (std::uint32_t i = 0; i < from.count; ++i) {
    add(out.data() + std::size_t{block_of[i]} * dim, from.row(i), dim);
    ++counts[block_of[i]];
  }
  for (std::size_t block = 0; block < blocks; ++block)
    scale(out.data() + block * dim, dim, 1 / static_cast<float>(counts[block]));
  return out;
}

std::vector<float> dots(const float* row, const std::vector<float>& rows, std::uint32_t dim) {
  std::vector<float> out(rows.size() / dim);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = dot(row, rows.data() + i * dim, dim);
  return out;
}

std::vector<std::uint32_t> by_value(std::span<const float> values) {
  std::vector<std::uint32_t> out(values.size());
  std::iota(out.begin(), out.end(), 0);
  std::ranges::stable_sort(out, [&](std::uint32_t a, std::uint32_t b) { return values[a] > values[b]; });
  return out;
}

std::vector<std::uint8_t> pairs_of_blocks(const std::vector<std::uint8_t>& meets,
                                          const std::vector<std::uint32_t>& query_blocks,
                                          const std::vector<std::uint32_t>& key_blocks) {
  const std::size_t width = *std::ranges::max_element(key_blocks) + 1;
  std::vector<std::uint8_t> out;
  out.reserve(query_blocks.size() * key_blocks.size());
  for (const std::uint32_t query : query_blocks) {
    for (const std::uint32_t key : key_blocks) out.push_back(meets[query * width + key]);
  }
  return out;
}

}  // namespace tpsim::rank
