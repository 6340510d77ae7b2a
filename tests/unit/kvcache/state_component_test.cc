// The radix tree with states at some of its nodes, against rules written down apart from it.
#include "kvcache/components/state_component.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "kvcache/pools/state_slots.h"
#include "kvcache/radix_cache.h"
#include "kvcache/req_to_token_pool.h"

namespace tpsim::kvcache {
namespace {

constexpr std::uint32_t kPages = 4000;

struct Tree {
  explicit Tree(std::uint32_t slots)
      : states(slots), pages(kPages, 1), cache({.page_size = 1}, &pages, &rows, nullptr, &states) {}

  // A request that computed `tokens` and ends, with a state behind the first `state_len` of them; 0: with
  // none.
  void finish(const TokenSequence& tokens, std::uint32_t state_len) {
    RadixCache::RequestState req;
    const auto match = cache.match_prefix(tokens, static_cast<std::uint32_t>(tokens.size()) - 1, 0);
    req.last_node = match.last_node;
    req.lock = cache.inc_lock_ref(match.last_node);
    req.cache_protected_len = match.matched_tokens;
    req.row = rows.alloc_row();
    std::vector<PageRun> runs;
    cache.collect_pages(match.last_node, runs);
    const auto wanted = static_cast<std::uint32_t>(tokens.size()) - match.matched_tokens;
    if (pages.available_pages() < wanted) cache.evict(kKvPool, wanted - pages.available_pages());
    ASSERT_TRUE(pages.alloc(wanted, runs));
    for (const PageRun& run : runs) rows.append(req.row, run);
    if (state_len > 0) {
      std::uint32_t slot = states.alloc();
      if (slot == StateSlots::kNone) {
        cache.evict(kStatePool, 1);
        slot = states.alloc();
      }
      ASSERT_NE(slot, StateSlots::kNone);
      req.offer = {slot, state_len};
    }
    cache.cache_finished_req(req, tokens, static_cast<std::uint32_t>(tokens.size()), true);
    if (req.offer.slot != StateSlots::kNone) states.free(req.offer.slot);
    rows.free_row(req.row);
    cache.check_invariants();
    EXPECT_EQ(cache.kept(kKvPool).total() + pages.available_pages(), kPages);
    EXPECT_EQ(states.held(), cache.kept(kStatePool).total());
  }
  RadixCache::MatchResult match(const TokenSequence& tokens) {
    return cache.match_prefix(tokens, static_cast<std::uint32_t>(tokens.size()), 0);
  }

  StateSlots states;
  PageAllocator pages;
  ReqToTokenPool rows;
  RadixCache cache;
};

TokenSequence sequence(std::vector<TokenRun> runs) {
  TokenSequence tokens;
  for (const TokenRun& run : runs) tokens.append(run);
  return tokens;
}

TEST(StateComponent, AMatchEndsAtTheLastStateOnTheWay) {
  Tree tree(4);
  const TokenSequence prompt = sequence({{1000, 200}});
  tree.finish(prompt, 128);
  EXPECT_EQ(tree.match(prompt).matched_tokens, 128U);
  // The tree holds no more than its state can be used for.
  EXPECT_EQ(tree.cache.kept(kKvPool).total(), 128U);
  tree.finish(prompt, 200);
  EXPECT_EQ(tree.match(prompt).matched_tokens, 200U);
  // Half way between two states the first of them counts, and the tokens behind it are told.
  const auto half = tree.match(sequence({{1000, 160}, {5000, 40}}));
  EXPECT_EQ(half.matched_tokens, 128U);
  EXPECT_EQ(half.full_matched_tokens, 160U);
  EXPECT_EQ(tree.match(sequence({{1000, 100}})).matched_tokens, 0U);
}

TEST(StateComponent, WithoutAStateNothingIsKept) {
  Tree tree(4);
  tree.finish(sequence({{1000, 50}}), 0);
  EXPECT_EQ(tree.cache.kept(kKvPool).total(), 0U);
  EXPECT_EQ(tree.states.held(), 0U);
}

TEST(StateComponent, AnInnerStateGoesAloneAndALeafWithItsTokens) {
  Tree tree(3);
  tree.finish(sequence({{1000, 64}}), 64);
  tree.finish(sequence({{1000, 64}, {2000, 64}}), 128);
  tree.finish(sequence({{1000, 64}, {3000, 64}}), 128);
  EXPECT_EQ(tree.states.available(), 0U);
  // A match of a longer prefix does not use the state in the middle.
  tree.match(sequence({{1000, 64}, {2000, 64}}));
  tree.match(sequence({{1000, 64}, {3000, 64}}));
  EXPECT_EQ(tree.cache.evict(kStatePool, 1), 1U);
  EXPECT_EQ(tree.cache.kept(kKvPool).total(), 192U);
  EXPECT_EQ(tree.match(sequence({{1000, 64}})).matched_tokens, 0U);
  EXPECT_EQ(tree.match(sequence({{1000, 64}, {3000, 64}})).matched_tokens, 128U);
  EXPECT_EQ(tree.cache.evict(kStatePool, 1), 1U);
  EXPECT_EQ(tree.cache.kept(kKvPool).total(), 128U);
  EXPECT_EQ(tree.match(sequence({{1000, 64}, {2000, 64}})).full_matched_tokens, 64U);
  // A state that comes again makes the prefix usable again.
  tree.finish(sequence({{1000, 64}}), 64);
  EXPECT_EQ(tree.match(sequence({{1000, 64}})).matched_tokens, 64U);
}

TEST(StateComponent, ALockedStateStaysAndItsAncestorsMayGo) {
  Tree tree(3);
  tree.finish(sequence({{1000, 64}}), 64);
  tree.finish(sequence({{1000, 64}, {2000, 64}}), 128);
  const auto match = tree.match(sequence({{1000, 64}, {2000, 64}}));
  const TreeLock lock = tree.cache.inc_lock_ref(match.last_node);
  EXPECT_EQ(tree.cache.kept(kStatePool).locked, 1U);
  EXPECT_EQ(tree.cache.evict(kStatePool, 3), 1U);
  EXPECT_EQ(tree.cache.evict(kKvPool, 1000), 0U);
  EXPECT_EQ(tree.match(sequence({{1000, 64}, {2000, 64}})).matched_tokens, 128U);
  // A split leaves it, and its lock, where it was taken.
  EXPECT_EQ(tree.match(sequence({{1000, 30}})).full_matched_tokens, 30U);
  EXPECT_EQ(tree.match(sequence({{1000, 64}, {2000, 64}})).matched_tokens, 128U);
  tree.cache.dec_lock_ref(match.last_node, lock);
  tree.cache.check_invariants();
  EXPECT_EQ(tree.cache.evict(kKvPool, 1000), 128U);
  EXPECT_EQ(tree.states.held(), 0U);
}

// What can be matched is the longest prefix of a key whose state is still there; which those are is kept in a
// map from the prefix, least recently used first, as the rules say it.
TEST(StateComponent, RandomWorkloadsFindTheLongestPrefixWithAState) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    Tree tree(3 + pick(30));
    std::vector<TokenSequence> seen;
    std::map<std::string, std::uint64_t> used;  // spelled prefix with a state: when it was used last
    std::uint64_t clock = 0;
    const auto spell = [](const TokenSequence& tokens, std::uint32_t length) {
      std::string text;
      for (const TokenRun& run : tokens.runs()) {
        for (std::uint32_t i = 0; i < run.length && text.size() < 8 * std::size_t{length}; ++i) {
          std::string word = std::to_string(run.first + i);
          word.resize(8, ' ');
          text += word;
        }
      }
      return text;
    };
    for (int step = 0; step < 60; ++step) {
      TokenSequence tokens;
      if (!seen.empty() && pick(3) > 0) {
        const TokenSequence& base = seen[pick(static_cast<std::uint32_t>(seen.size()))];
        std::uint32_t left = 1 + pick(static_cast<std::uint32_t>(base.size()));
        for (const TokenRun& run : base.runs()) {
          const std::uint32_t take = std::min(left, run.length);
          if (take > 0) tokens.append({run.first, take});
          left -= take;
        }
      }
      tokens.append(
          {1'000'000 + 1000 * std::uint64_t{seed * 100 + static_cast<std::uint32_t>(step)}, 1 + pick(60)});
      const auto size = static_cast<std::uint32_t>(tokens.size());
      // What the request itself matches counts as a use of that state alone.
      std::uint32_t longest = 0;
      for (std::uint32_t length = size - 1; length > 0 && longest == 0; --length) {
        if (used.contains(spell(tokens, length))) longest = length;
      }
      EXPECT_EQ(tree.cache.match_prefix(tokens, size - 1, 0).matched_tokens, longest) << "seed " << seed;
      if (longest > 0) used[spell(tokens, longest)] = ++clock;
      const std::uint32_t state_len = std::max(longest + 1, 1 + pick(size));
      if (tree.states.available() == 0) {
        // Its own prefix is locked.
        auto oldest = used.end();
        for (auto it = used.begin(); it != used.end(); ++it) {
          const bool own = longest > 0 && it->first == spell(tokens, longest);
          if (!own && (oldest == used.end() || it->second < oldest->second)) oldest = it;
        }
        ASSERT_NE(oldest, used.end());
        used.erase(oldest);
      }
      tree.finish(tokens, state_len);
      used[spell(tokens, state_len)] = ++clock;
      ASSERT_EQ(tree.states.held(), used.size()) << "seed " << seed << " step " << step;
      seen.push_back(tokens);
    }
  }
}

}  // namespace
}  // namespace tpsim::kvcache
