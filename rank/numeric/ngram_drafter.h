// Drafts from the request's own text: what followed the last few tokens where they occurred before.
//
// As SGLang's NGRAM (speculative/ngram_worker.py, cpp_ngram/ngram_corpus.py), whose corpus holds the texts of
// all requests: longer matches first, then shorter ones, their continuations merged into one tree. Whatever
// is drafted, the answer is the same; only how much of it is accepted depends on it.
#pragma once

#include <cstdint>
#include <span>

#include "rank/numeric/draft_tree.h"

namespace tpsim::rank {

struct NgramOptions {
  std::uint32_t num_draft_tokens = 12;  // nodes of a tree, the root included
  std::uint32_t max_breadth = 10;       // children of a node (--speculative-ngram-max-bfs-breadth)
  std::uint32_t max_match = 17;  // tokens of the longest match (--speculative-ngram-max-trie-depth, less one)
};

// A tree of exactly num_draft_tokens nodes under text.back(); where the text has no more to offer, the rest
// are guesses behind the root that nothing speaks for. REQUIRES: text is not empty.
DraftTree draft_ngrams(std::span<const std::uint32_t> text, const NgramOptions& options);

}  // namespace tpsim::rank
