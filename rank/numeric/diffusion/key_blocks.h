// What backends share that choose keys by blocks of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/diffusion/grid.h"
#include "rank/numeric/diffusion/head_attention.h"

namespace tpsim::rank {

// Of each token of a grid its block, blocks counted as tokens are: columns first, then rows, then frames.
std::vector<std::uint32_t> blocks_of_tokens(const attention::GridSize& grid,
                                            const attention::GridSize& block);
// Of each of so many tokens in a row.
std::vector<std::uint32_t> blocks_in_a_row(std::uint32_t tokens, std::uint32_t block);
// Means of the rows of each block, [blocks, dim]. REQUIRES: no block is empty.
std::vector<float> block_means(const HeadRows& from, std::uint32_t dim,
                               const std::vector<std::uint32_t>& block_of);
// Of `row` with each of `rows`, [count, dim].
std::vector<float> dots(const float* row, const std::vector<float>& rows, std::uint32_t dim);
// Places in falling order of their values, the first of equal ones first.
std::vector<std::uint32_t> by_value(std::span<const float> values);
// Of each token of the queries' blocks and each of the keys' what `meets` [query blocks, key blocks] has.
std::vector<std::uint8_t> pairs_of_blocks(const std::vector<std::uint8_t>& meets,
                                          const std::vector<std::uint32_t>& query_blocks,
                                          const std::vector<std::uint32_t>& key_blocks);

}  // namespace tpsim::rank
