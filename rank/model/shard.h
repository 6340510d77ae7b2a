// One rank's share of a model under tensor parallelism, as SGLang cuts it: query heads are split; KV heads
// are split, or replicated where there are more ranks than heads; column- and row-parallel linear layers;
// vocabulary padded to 64 entries and split.
#pragma once

#include <cstdint>

#include "rank/model/model_config.h"

namespace tpsim::rank {

struct HeadRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  // inclusive
  std::uint32_t count() const { return last - first + 1; }
};

struct Shard {
  std::uint32_t tp_size = 1;
  std::uint32_t tp_rank = 0;
  HeadRange q_heads;
  HeadRange kv_heads;
  std::uint32_t vocab = 0;    // entries of the (padded) vocabulary
  std::uint32_t ep_size = 1;  // 1: a part of every expert; tp_size: whole experts, a part of their number
};

// Throws UserError naming --tp or --ep-size where it does not divide what must be split.
Shard make_shard(const ModelConfig& model, std::uint32_t tp_size, std::uint32_t tp_rank,
                 std::uint32_t ep_size = 1);

}  // namespace tpsim::rank
