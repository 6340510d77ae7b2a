// The tree of drafts that a draft model grows, step by step: behind each of topk leaves it guesses topk
// tokens, and the best of all these are the leaves of the next step. What is verified are the best nodes of
// all steps. A node's score is the probability of its path, as the draft model has it.
//
// Source: SGLang 0.5.23 speculative/spec_utils.py (select_top_k_tokens) and eagle_utils.py
// (organize_draft_results, build_tree_kernel_efficient).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/numeric/draft_tree.h"

namespace tpsim::rank {

// A token that may follow.
struct Guess {
  std::uint32_t token = 0;
  float probability = 0;
};

// The topk likeliest tokens, likeliest first (ties: the lowest index), appended to `out`. `token_of`: the
// target's token of each entry of the draft's vocabulary; empty: the same.
// REQUIRES: topk <= logits.size().
void add_best_guesses(std::span<const float> logits, std::uint32_t topk,
                      std::span<const std::uint32_t> token_of, std::vector<Guess>& out);

class DraftBeams {
 public:
  struct Leaf {
    std::uint32_t token = 0;
    std::uint32_t parent = 0;  // its place among the leaves of the step before; behind the root: 0
  };

  // `first`: topk guesses for what follows the root.
  explicit DraftBeams(std::span<const Guess> first);

  // topk leaves, best first.
  std::span<const Leaf> leaves() const { return leaves_; }
  // [topk, topk]: guesses behind each leaf.
  void grow(std::span<const Guess> guesses);
  // The best num_draft_tokens - 1 nodes under the root, in the order in which they were guessed.
  // REQUIRES: so many were guessed.
  DraftTree tree(std::uint32_t root_token, std::uint32_t num_draft_tokens) const;

 private:
  static constexpr std::uint32_t kRoot = ~0U;

  struct Node {
    std::uint32_t token = 0;
    std::uint32_t parent = kRoot;
    float score = 0;
  };
  // Of nodes [first, end), the `count` best; ties: the first, so that a parent is never behind its child.
  std::vector<std::uint32_t> best(std::size_t first, std::size_t count) const;

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> leaf_nodes_;
  std::vector<Leaf> leaves_;
};

}  // namespace tpsim::rank
