// What speculative decoding of computed passes is about: its numbers, and a request of a pass that verifies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/numeric/draft_tree.h"

namespace tpsim::rank {

struct DraftingConfig {
  std::uint32_t num_draft_tokens = 0;  // 0: no speculation
  std::uint32_t num_steps = 0;         // of a draft model, the pass that extends it included
  std::uint32_t topk = 1;              // guesses behind a token; of n-grams the breadth
  std::uint32_t page_size = 1;
  std::uint32_t num_pages = 0;
  std::uint32_t draft_vocab_size = 0;  // of a draft model
  // The target's token of each entry of the draft's vocabulary; empty: the same.
  std::vector<std::uint32_t> token_of;
};

// One request of a pass that verifies.
struct Verified {
  std::uint32_t row = 0;
  std::uint32_t prefix_len = 0;  // tokens whose KV is stored
  std::span<const std::uint32_t> page_table;
  DraftTree tree;
  std::vector<std::uint32_t> path;     // of the tree, accepted
  std::vector<std::uint32_t> sampled;  // behind each node of the path
};

}  // namespace tpsim::rank
