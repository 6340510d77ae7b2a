// Verification of drafts against a plain reference, on a million random trees: the accepted path, the KV that
// is kept, the pages that are given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "rank/numeric/sampler.h"

namespace tpsim::rank {
namespace {

// As SGLang's kernel walks (verify_tree_greedy): of each node its first child and its next sibling; from the
// last accepted node through its children, in order, to the first that was predicted.
std::vector<std::uint32_t> reference_path(const DraftTree& tree,
                                          const std::vector<std::uint32_t>& predicted) {
  constexpr int kNone = -1;
  const int count = static_cast<int>(tree.size());
  std::vector<int> next_token(tree.size(), kNone), next_sibling(tree.size(), kNone);
  for (int node = count - 1; node > 0; --node) {
    const auto parent = tree.parents[static_cast<std::size_t>(node)];
    next_sibling[static_cast<std::size_t>(node)] = next_token[parent];
    next_token[parent] = node;
  }
  std::vector<std::uint32_t> path = {0};
  int last = 0;
  for (;;) {
    int at = next_token[static_cast<std::size_t>(last)];
    while (at != kNone &&
           tree.tokens[static_cast<std::size_t>(at)] != predicted[static_cast<std::size_t>(last)])
      at = next_sibling[static_cast<std::size_t>(at)];
    if (at == kNone) return path;
    path.push_back(static_cast<std::uint32_t>(at));
    last = at;
  }
}

TEST(DraftTree, AMillionRandomTreesAreVerifiedAsThePlainWay) {
  std::mt19937 random(1);
  kvcache::PageAllocator pages(64, 4);
  std::vector<std::uint32_t> slots(64 * 4), path, predicted;
  DraftTree tree;
  std::uint64_t kept = 0;
  for (int round = 0; round < 1'000'000; ++round) {
    const std::uint32_t count = 1 + random() % 12;
    const std::uint32_t alphabet = 2 + random() % 3;
    tree.tokens.clear();
    tree.parents.clear();
    predicted.clear();
    for (std::uint32_t node = 0; node < count; ++node) {
      tree.tokens.push_back(random() % alphabet);
      tree.parents.push_back(node == 0 ? 0 : random() % node);
      predicted.push_back(random() % alphabet);
    }
    verify_tree(tree, predicted, path);
    const std::vector<std::uint32_t> expected = reference_path(tree, predicted);
    ASSERT_EQ(path, expected) << "tree " << round;
    kept += path.size();

    // The KV of the kept nodes moves together behind the prefix, in order, and what is behind it is given
    // back.
    const std::uint32_t prefix = random() % 20;
    constexpr std::uint32_t kPage = 4;
    std::vector<kvcache::PageRun> runs;
    const std::uint32_t held = (prefix + count + kPage - 1) / kPage;
    ASSERT_TRUE(pages.alloc(held, runs));
    std::vector<std::uint32_t> table;
    for (const kvcache::PageRun& run : runs) {
      for (std::uint32_t i = 0; i < run.count; ++i) table.push_back(run.first + i);
    }
    const auto slot = [&](std::uint32_t position) -> std::uint32_t& {
      return slots[table[position / kPage] % 64 * kPage + position % kPage];
    };
    for (std::uint32_t node = 0; node < count; ++node) slot(prefix + node) = 100 + node;
    for (std::uint32_t k = 0; k < path.size(); ++k) slot(prefix + k) = slot(prefix + path[k]);
    for (std::uint32_t k = 0; k < path.size(); ++k)
      ASSERT_EQ(slot(prefix + k), 100 + path[k]) << "tree " << round;
    const auto needed = (prefix + static_cast<std::uint32_t>(path.size()) + kPage - 1) / kPage;
    for (std::uint32_t page = needed; page < held; ++page) pages.free({table[page], 1});
    ASSERT_EQ(pages.available_pages(), 64 - needed);
    for (std::uint32_t page = 0; page < needed; ++page) pages.free({table[page], 1});
  }
  EXPECT_EQ(pages.available_pages(), 64u);
  EXPECT_GT(kept, 1'200'000u);  // paths really are accepted
}

TEST(DraftTree, DepthsCountFromTheRoot) {
  EXPECT_EQ(depths_of(std::vector<std::uint32_t>{0, 0, 1, 1, 0, 3}),
            (std::vector<std::uint32_t>{0, 1, 2, 2, 1, 3}));
}

bool is_tree(const DraftTree& tree, std::uint32_t nodes, std::uint32_t breadth) {
  if (tree.tokens.size() != nodes || tree.parents.size() != nodes || tree.parents[0] != 0) return false;
  for (std::uint32_t node = 1; node < nodes; ++node) {
    if (tree.parents[node] >= node) return false;
    if (breadth == 1 && tree.parents[node] != node - 1) return false;
  }
  return true;
}

TEST(NgramDrafter, WhatFollowedBeforeIsDrafted) {
  const std::vector<std::uint32_t> text = {7, 8, 9, 1, 2, 3, 4, 5, 7, 8, 9};
  const DraftTree chain = draft_ngrams(text, {.num_draft_tokens = 5, .max_breadth = 1});
  EXPECT_EQ(chain.tokens, (std::vector<std::uint32_t>{9, 1, 2, 3, 4}));
  EXPECT_EQ(chain.parents, (std::vector<std::uint32_t>{0, 0, 1, 2, 3}));
  // Two continuations of 9, the latest first.
  const std::vector<std::uint32_t> twice = {9, 1, 5, 9, 2, 6, 9};
  const DraftTree tree = draft_ngrams(twice, {.num_draft_tokens = 8, .max_breadth = 4});
  EXPECT_NE(tree.child(0, 1), tree.size());
  EXPECT_NE(tree.child(0, 2), tree.size());
  EXPECT_EQ(tree.child(0, 2), 1u);
}

TEST(NgramDrafter, EveryTextMakesATreeOfThatSize) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint32_t> text(1 + random() % 60);
    for (std::uint32_t& token : text) token = random() % 4;
    const std::uint32_t breadth = 1 + random() % 4;
    const std::uint32_t nodes = 2 + random() % 14;
    const DraftTree tree = draft_ngrams(text, {.num_draft_tokens = nodes, .max_breadth = breadth});
    ASSERT_TRUE(is_tree(tree, nodes, breadth)) << "text " << round;
    ASSERT_EQ(tree.tokens[0], text.back());
  }
}

}  // namespace
}  // namespace tpsim::rank
