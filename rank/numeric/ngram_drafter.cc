#include "rank/numeric/ngram_drafter.h"

#include <algorithm>
#include <cstddef>

namespace tpsim::rank {
namespace {

// Adds the tokens of text from `at` on as a path under the root, as far as room and breadth allow.
void add_path(std::span<const std::uint32_t> text, std::size_t at, const NgramOptions& options,
              DraftTree& tree) {
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size() && tree.size() < options.num_draft_tokens; ++i) {
    const std::uint32_t known = tree.child(node, text[i]);
    if (known != tree.size()) {
      node = known;
      continue;
    }
    if (std::count(tree.parents.begin() + 1, tree.parents.end(), node) >=
        static_cast<std::ptrdiff_t>(options.max_breadth))
      return;
    tree.tokens.push_back(text[i]);
    tree.parents.push_back(node);
    node = tree.size() - 1;
  }
}

}  // namespace

DraftTree draft_ngrams(std::span<const std::uint32_t> text, const NgramOptions& options) {
  DraftTree tree;
  tree.tokens.push_back(text.back());
  tree.parents.push_back(0);
  const std::size_t longest = std::min<std::size_t>(options.max_match, text.size() - 1);
  for (std::size_t length = longest; length > 0 && tree.size() < options.num_draft_tokens; --length) {
    const auto suffix = text.last(length);
    // The latest occurrence first.
    for (std::size_t end = text.size() - 1; end >= length; --end) {
      if (!std::equal(suffix.begin(), suffix.end(), text.begin() + static_cast<std::ptrdiff_t>(end - length)))
        continue;
      add_path(text, end, options, tree);
      if (tree.size() == options.num_draft_tokens) break;
    }
  }
  while (tree.size() < options.num_draft_tokens) {
    // Behind the deepest path, so that a chain stays one.
    const std::uint32_t parent = options.max_breadth == 1 ? tree.size() - 1 : 0;
    tree.tokens.push_back(text.back());
    tree.parents.push_back(parent);
  }
  return tree;
}

}  // namespace tpsim::rank
