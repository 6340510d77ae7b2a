// Which tokens come next: the one that is picked from logits, and drafts of several, as trees that are
// verified.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/forward.pb.h"

namespace tpsim::rank {

// As SGLang's sampler: temperature, then top-k, then top-p.
//
// Greedy where temperature is 0 (ties: the lowest id). Otherwise the draw is a function of params.seed() and
// `position` (the length of the sequence so far, in tokens) alone: the same for any batch, any number of
// ranks, and after a retraction. REQUIRES: logits is not empty.
std::uint32_t sample(std::span<const float> logits, const proto::SamplingParams& params,
                     std::uint32_t position);

// A request's drafts as a tree, and which of them the target model confirms.
//
// Node 0 is the token that was sampled last, whose KV is not stored yet; every other node is a guess for what
// follows its parent. Nodes are in an order in which parents come first (SGLang's retrieve_index; its
// next_token and next_sibling follow from the parents).
struct DraftTree {
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint32_t> parents;  // parents[i] < i; parents[0] is 0

  std::uint32_t size() const { return static_cast<std::uint32_t>(tokens.size()); }
  // The child of `parent` with that token, or size() where there is none.
  std::uint32_t child(std::uint32_t parent, std::uint32_t token) const;
};

// Steps from the root to each node.
std::vector<std::uint32_t> depths_of(std::span<const std::uint32_t> parents);

// The accepted path, from the root on: after a node comes its first child whose token the target model
// predicted at that node. predicted[i] is the target's token after node i. What is sampled at the last node
// is the next token of the request; nobody drafted it. SGLang's verify_tree_greedy
// (sgl-kernel/csrc/speculative/eagle_utils.cu).
void verify_tree(const DraftTree& tree, std::span<const std::uint32_t> predicted,
                 std::vector<std::uint32_t>& path);

// The tree of drafts that a draft model grows, step by step: after each of topk leaves it guesses topk
// tokens, and the best of all these are the leaves of the next step. What is verified are the best nodes of
// all steps. A node's score is the probability of its path, as the draft model has it.
//
// Source: SGLang 0.5.23 speculative/spec_utils.py (select_top_k_tokens) and eagle_utils.py
// (organize_draft_results, build_tree_kernel_efficient).

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
    std::uint32_t parent = 0;  // its place among the leaves of the step before; after the root: 0
  };

  // `first`: topk guesses for what follows the root.
  explicit DraftBeams(std::span<const Guess> first);

  // topk leaves, best first.
  std::span<const Leaf> leaves() const { return leaves_; }
  // [topk, topk]: guesses after each leaf.
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
  // Of nodes [first, end), the `count` best; ties: the first, so that a parent is never after its child.
  std::vector<std::uint32_t> best(std::size_t first, std::size_t count) const;

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> leaf_nodes_;
  std::vector<Leaf> leaves_;
};

// Drafts from the request's own text: what followed the last few tokens where they occurred before.
//
// As SGLang's NGRAM (speculative/ngram_worker.py, cpp_ngram/ngram_corpus.py), whose corpus holds the texts of
// all requests: longer matches first, then shorter ones, their continuations merged into one tree. Whatever
// is drafted, the answer is the same; only how much of it is accepted depends on it.
struct NgramOptions {
  std::uint32_t num_draft_tokens = 12;  // nodes of a tree, the root included
  std::uint32_t max_breadth = 10;       // children of a node (--speculative-ngram-max-bfs-breadth)
  std::uint32_t max_match = 17;  // tokens of the longest match (--speculative-ngram-max-trie-depth, less one)
};

// A tree of exactly num_draft_tokens nodes under text.back(); where the text has no more to offer, the rest
// are guesses after the root that nothing speaks for. REQUIRES: text is not empty.
DraftTree draft_ngrams(std::span<const std::uint32_t> text, const NgramOptions& options);

}  // namespace tpsim::rank
