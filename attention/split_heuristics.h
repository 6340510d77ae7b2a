// Rules for splits that several libraries share.
#pragma once

#include <cstdint>

namespace tpsim::attention {

// FlashAttention's num_splits_heuristic (hopper/heuristics.h; FlashAttention 2 has the same): most KV splits
// of a sequence that has the device to itself, with `blocks` thread blocks without splitting and `kv_steps`
// steps of the loop over KV.
std::uint32_t flash_num_splits(std::uint32_t blocks, std::uint32_t multiprocessors, std::uint32_t kv_steps);

// FlashInfer's query tile in rows (utils.cuh, FA2DetermineCtaTileQ) by the average number of packed rows of a
// request.
std::uint32_t flashinfer_tile_q(double average_packed_len, std::uint32_t head_dim);

}  // namespace tpsim::attention
