// One pass as numeric execution sees it: the metadata of RankState with page tables and token ids.
#pragma once

#include <cstdint>
#include <span>

#include "attention/backend.h"

namespace tpsim::rank {

// Requests in the order of the batch: the extend part, then the decode set. Request i has q_lens[i] new
// tokens behind prefix_lens[i] tokens whose KV is stored already; their KV goes to its pages, too. Spans are
// valid during the pass.
struct TokenBatch {
  attention::ForwardMetadata metadata;
  std::span<const std::uint32_t> token_ids;                     // [total new tokens], below vocab_size
  std::span<const std::uint32_t> q_lens;                        // [requests]
  std::span<const std::uint32_t> prefix_lens;                   // [requests]
  std::span<const std::span<const std::uint32_t>> page_tables;  // [requests]: page numbers
};

}  // namespace tpsim::rank
