// Random requests over a radix pool whose window layers have a pool of their own, against a reference that
// knows tokens only: what the tree holds of each prefix, with its window part or without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "kvcache/chunk_cache.h"
#include "kvcache/pools/window_pages.h"
#include "kvcache/radix_cache.h"
#include "tests/unit/fewer_operations.h"

namespace tpsim::kvcache::window_property_test {
namespace {

using Tokens = std::vector<TokenId>;

Tokens expand(const TokenSequence& sequence) {
  Tokens out;
  for (const TokenRun& run : sequence.runs()) {
    for (std::uint32_t i = 0; i < run.length; ++i) out.push_back(run.first + i);
  }
  return out;
}

std::vector<std::uint32_t> expand(std::span<const PageRun> runs) {
  std::vector<std::uint32_t> out;
  for (const PageRun& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) out.push_back(run.first + i);
  }
  return out;
}

class Server {
 public:
  Server(std::uint64_t seed, std::uint32_t page_size, std::uint32_t window, EvictionPolicy policy, bool radix)
      : random_(seed),
        page_size_(page_size),
        window_(window),
        allocator_(kPages, page_size),
        windows_(kWindowPages, kPages) {
    if (radix) {
      auto tree = std::make_unique<RadixCache>(
          RadixCache::Options{.page_size = page_size, .policy = policy, .window = window}, &allocator_,
          &rows_, &windows_);
      tree_ = tree.get();
      cache_ = std::move(tree);
    } else {
      cache_ = std::make_unique<ChunkCache>(page_size, window, &allocator_, &rows_, &windows_);
    }
    for (int i = 0; i < 10; ++i) prompts_.push_back(new_prompt());
  }

  void step() {
    const std::uint64_t pick = random_() % 30;
    if (pick < 5) {
      match();
    } else if (pick < 12) {
      admit();
    } else if (pick < 24) {
      go_on();
    } else if (pick < 28) {
      finish();
    } else if (pick < 29) {
      cache_->evict(kKvPool, random_() % (kPages * page_size_ / 4));
    } else {
      cache_->evict(kWindowPool, random_() % (kWindowPages * page_size_ / 2));
    }
  }

  // Pages held by requests, cached and free are all there are, in both pools; every request has its window.
  void check() {
    cache_->check_invariants();
    std::uint64_t held = 0, held_windows = 0;
    for (const Live& live : live_) {
      const std::uint32_t pages = rows_.num_pages(live.state.row);
      held += pages - live.state.cache_protected_len / page_size_;
      held_windows +=
          pages - std::max(live.state.cache_protected_len, live.state.window_evicted_len) / page_size_;
      const std::vector<std::uint32_t> row = expand(rows_.runs(live.state.row));
      const std::uint32_t from = live.filled > window_ ? (live.filled - window_) / page_size_ : 0;
      for (std::uint32_t i = 0; i < row.size(); ++i) {
        ASSERT_EQ(written_[row[i]], page_of(live.tokens, i, live.filled)) << "page " << i;
        ASSERT_TRUE(i < from || windows_.has(row[i])) << "page " << i << " of " << row.size();
      }
    }
    ASSERT_EQ(held + cache_->kept(kKvPool).total() / page_size_ + allocator_.available_pages(), kPages);
    ASSERT_EQ(held_windows + cache_->kept(kWindowPool).total() / page_size_ + windows_.available_pages(),
              kWindowPages);
  }

 private:
  static constexpr std::uint32_t kPages = 300;
  static constexpr std::uint32_t kWindowPages = 160;

  struct Live {
    RadixCache::RequestState state;
    TokenSequence tokens;
    std::uint32_t prompt = 0;
    std::uint32_t filled = 0;
  };
  struct Cached {
    bool full = false;
    bool window = false;
  };

  // What page `index` of a sequence holds: its tokens so far.
  Tokens page_of(const TokenSequence& tokens, std::uint32_t index, std::uint32_t filled) const {
    Tokens all = expand(tokens);
    all.resize(filled);
    const auto begin = all.begin() + std::ptrdiff_t{index} * page_size_;
    return Tokens(begin, std::min(begin + page_size_, all.end()));
  }

  TokenSequence new_prompt() {
    TokenSequence prompt;
    if (!prompts_.empty() && random_() % 4 != 0) {
      prompt = prompts_[random_() % prompts_.size()];
      prompt.truncate(random_() % (prompt.size() + 1));
    }
    while (prompt.size() < 30 * page_size_ && random_() % 9 != 0) {
      prompt.append({random_() % 5 * 1000, static_cast<std::uint32_t>(1 + random_() % (4 * page_size_))});
    }
    if (prompt.empty()) prompt.append({7, 1 + static_cast<std::uint32_t>(random_() % 9)});
    return prompt;
  }

  // What the tree has of `key`, page by page: found by its keys' tokens, node after node.
  std::vector<Cached> cached_pages(const Tokens& key) const {
    std::vector<Cached> out;
    RadixCache::NodeId node = RadixCache::kRoot;
    std::size_t at = 0;
    while (true) {
      RadixCache::NodeId next = RadixCache::kRoot;
      std::size_t common = 0;
      for (const RadixCache::NodeId child : cache_->children(node)) {
        const std::vector<std::uint32_t> pages = expand(tree_->pages(child));
        std::size_t same = 0;
        while (same < pages.size() && at + (same + 1) * page_size_ <= key.size() &&
               std::equal(written_.at(pages[same]).begin(), written_.at(pages[same]).end(),
                          key.begin() + static_cast<std::ptrdiff_t>(at + same * page_size_))) {
          ++same;
        }
        if (same == 0) continue;
        next = child;
        common = same;
      }
      if (next == RadixCache::kRoot) return out;
      for (std::size_t i = 0; i < common; ++i)
        out.push_back({true, tree_->component(kWindowPool)->has(next)});
      at += common * page_size_;
      if (common * page_size_ < tree_->length(next)) return out;
      node = next;
    }
  }

  // The longest prefix whose last `window` tokens, or all, have their window part.
  std::size_t usable(const std::vector<Cached>& pages) const {
    std::size_t best = 0, since = window_;  // as if the window before the sequence were there
    for (std::size_t i = 0; i < pages.size(); ++i) {
      since = pages[i].window ? since + page_size_ : 0;
      if (since >= window_) best = (i + 1) * page_size_;
    }
    return best;
  }

  RadixCache::MatchResult checked_match(const TokenSequence& tokens, std::uint32_t limit,
                                        RadixCache::MatchCursor& cursor) {
    Tokens key = expand(tokens);
    key.resize(limit / page_size_ * page_size_);
    const std::vector<Cached> before = cached_pages(key);
    const RadixCache::MatchResult got = cache_->match_prefix(tokens, limit, 0, cursor);
    EXPECT_EQ(got.full_matched_tokens, before.size() * page_size_);
    EXPECT_EQ(got.matched_tokens, usable(before));
    return got;
  }

  void change(std::size_t i) {
    prompts_[i] = new_prompt();
    cursors_[i] = {};
  }

  void match() {
    const std::size_t i = random_() % prompts_.size();
    if (random_() % 4 == 0) change(i);
    checked_match(prompts_[i], static_cast<std::uint32_t>(prompts_[i].size()), cursors_[i]);
  }

  void admit() {
    if (live_.size() >= 5) return finish();
    Live live;
    const std::size_t i = random_() % prompts_.size();
    if (random_() % 3 == 0) change(i);
    live.tokens = prompts_[i];
    live.prompt = live.state.prompt_len = static_cast<std::uint32_t>(live.tokens.size());
    live.tokens.append(
        {1'000'000 + 1000 * random_(), static_cast<std::uint32_t>(random_() % (12 * page_size_))});
    RadixCache::MatchCursor fresh;
    const RadixCache::MatchResult got = checked_match(live.tokens, live.prompt - 1, fresh);
    live.state.lock = cache_->inc_lock_ref(got.last_node);
    live.state.last_node = got.last_node;
    live.state.cache_protected_len = live.filled = got.matched_tokens;
    if (got.full_matched_tokens > got.matched_tokens) live.state.branching_len = got.full_matched_tokens;
    live.state.row = rows_.alloc_row();
    std::vector<PageRun> pages;
    cache_->collect_pages(got.last_node, pages);
    for (const PageRun& run : pages) rows_.append(live.state.row, run);
    live_.push_back(std::move(live));
    go_on(live_.back());
  }

  void go_on() {
    if (!live_.empty()) go_on(live_[random_() % live_.size()]);
  }

  // A chunk of the prompt, or some decode steps.
  void go_on(Live& live) {
    const bool prefill = live.filled < live.prompt;
    const auto size = static_cast<std::uint32_t>(prefill ? live.prompt : live.tokens.size());
    if (live.filled == size) return;
    if (!prefill || tree_ == nullptr) cache_->free_out_of_window(live.state, live.filled);
    grow(live, static_cast<std::uint32_t>(1 + random_() % (size - live.filled)));
    if (!prefill) return;
    const std::uint32_t changed = cache_->cache_unfinished_req(live.state, live.tokens, live.filled, false);
    ASSERT_LE(changed, rows_.num_pages(live.state.row));
  }

  void grow(Live& live, std::uint32_t count) {
    const std::uint32_t filled = live.filled + count;
    const std::uint32_t pages = (filled + page_size_ - 1) / page_size_ - rows_.num_pages(live.state.row);
    if (allocator_.available_pages() < pages)
      cache_->evict(kKvPool, (pages - allocator_.available_pages()) * page_size_);
    if (windows_.available_pages() < pages) {
      cache_->evict(kWindowPool, (pages - windows_.available_pages()) * page_size_);
    }
    if (allocator_.available_pages() < pages || windows_.available_pages() < pages) return;
    std::vector<PageRun> fresh;
    ASSERT_TRUE(allocator_.alloc(pages, fresh));
    for (const PageRun& run : fresh) {
      windows_.alloc(run);
      rows_.append(live.state.row, run);
    }
    const std::vector<std::uint32_t> row = expand(rows_.runs(live.state.row));
    for (std::uint32_t i = live.filled / page_size_; i < row.size(); ++i) {
      written_[row[i]] = page_of(live.tokens, i, filled);
    }
    live.filled = filled;
  }

  void finish() {
    if (live_.empty()) return;
    const std::size_t i = random_() % live_.size();
    Live live = std::move(live_[i]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    cache_->cache_finished_req(live.state, live.tokens, live.filled, random_() % 4 != 0);
    rows_.free_row(live.state.row);
  }

  std::mt19937_64 random_;
  std::uint32_t page_size_;
  std::uint32_t window_;
  PageAllocator allocator_;
  WindowPages windows_;
  ReqToTokenPool rows_;
  std::unique_ptr<PrefixCache> cache_;
  RadixCache* tree_ = nullptr;  // the cache, where it is one
  std::vector<TokenSequence> prompts_;
  std::map<std::size_t, RadixCache::MatchCursor> cursors_;  // by prompt
  std::map<std::uint32_t, Tokens> written_;                 // by page: the tokens whose KV it holds
  std::vector<Live> live_;
};

struct Parameters {
  std::uint32_t page_size;
  std::uint32_t window;  // tokens
  EvictionPolicy policy;
  bool radix;
};

class WindowProperty : public ::testing::TestWithParam<Parameters> {};

TEST_P(WindowProperty, KeepsWhatWindowsReachAndAccountsForEveryPage) {
  const Parameters p = GetParam();
  constexpr int kOperations = kFewerOperations ? 300 : 3000;
  Server server(p.page_size * 1009 + p.window, p.page_size, p.window, p.policy, p.radix);
  for (int i = 0; i < kOperations; ++i) {
    server.step();
    if (i % 5 == 0) server.check();
    if (HasFailure()) FAIL() << "operation " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WindowProperty,
                         ::testing::Values(Parameters{1, 1, EvictionPolicy::kLru, true},
                                           Parameters{1, 12, EvictionPolicy::kLru, true},
                                           Parameters{1, 40, EvictionPolicy::kSlru, true},
                                           Parameters{1, 12, EvictionPolicy::kMru, true},
                                           Parameters{4, 3, EvictionPolicy::kLru, true},
                                           Parameters{4, 18, EvictionPolicy::kLfu, true},
                                           Parameters{16, 100, EvictionPolicy::kPriority, true},
                                           Parameters{16, 31, EvictionPolicy::kFilo, true},
                                           Parameters{1, 12, EvictionPolicy::kLru, false},
                                           Parameters{16, 40, EvictionPolicy::kLru, false}));

TEST(WindowPages, RefusesWhatCannotBe) {
  WindowPages pages(10, 200);
  pages.alloc({60, 8});
  EXPECT_EQ(pages.available_pages(), 2u);
  EXPECT_EQ(pages.count({50, 30}), 8u);
  EXPECT_THROW(pages.alloc({67, 2}), std::logic_error);
  EXPECT_THROW(pages.alloc({100, 3}), std::logic_error);
  EXPECT_THROW(pages.free({59, 2}), std::logic_error);
  EXPECT_EQ(pages.available_pages(), 2u);
  pages.free_rest({0, 64});
  EXPECT_EQ(pages.available_pages(), 6u);
  EXPECT_FALSE(pages.has(63));
  EXPECT_TRUE(pages.has(64));
}

// A split of the tombstone, the node's own page kept for others or given back, and the branch that a match
// names: each once, by hand.
TEST(WindowRadix, AnInsertionGivesATombstoneItsWindowBack) {
  PageAllocator allocator(100, 1);
  WindowPages windows(100, 100);
  ReqToTokenPool rows;
  RadixCache radix({.page_size = 1, .window = 4}, &allocator, &rows, &windows);
  TokenSequence tokens;
  tokens.append({10, 20});
  const auto serve = [&](RadixCache::RequestState& state, std::uint32_t from, std::uint32_t to) {
    std::vector<PageRun> fresh;
    ASSERT_TRUE(allocator.alloc(to - from, fresh));
    for (const PageRun& run : fresh) {
      windows.alloc(run);
      rows.append(state.row, run);
    }
  };
  RadixCache::RequestState first;
  first.row = rows.alloc_row();
  serve(first, 0, 20);
  radix.cache_finished_req(first, tokens, 20, true);
  rows.free_row(first.row);
  EXPECT_EQ(radix.kept(kWindowPool).evictable, 20u);
  // The older part goes first; the last window stays and is of no use alone.
  EXPECT_EQ(radix.evict(kWindowPool, 1), 16u);
  EXPECT_EQ(radix.match_prefix(tokens, 20, 0).matched_tokens, 20u);
  const RadixCache::MatchResult half = radix.match_prefix(tokens, 18, 0);
  EXPECT_EQ(half.matched_tokens, 0u);
  EXPECT_EQ(half.full_matched_tokens, 18u);
  // Another request computes them again and leaves them at the branch.
  RadixCache::RequestState second;
  second.row = rows.alloc_row();
  second.branching_len = 18;
  serve(second, 0, 19);
  radix.cache_unfinished_req(second, tokens, 19, false);
  EXPECT_EQ(second.branching_len, 0u);
  EXPECT_EQ(second.cache_protected_len, 18u);
  EXPECT_EQ(radix.match_prefix(tokens, 18, 0).matched_tokens, 18u);
  radix.check_invariants();
  radix.cache_finished_req(second, tokens, 19, true);
  rows.free_row(second.row);
  radix.check_invariants();
  EXPECT_EQ(radix.kept(kKvPool).total() + allocator.available_pages(), 100u);
}

}  // namespace
}  // namespace tpsim::kvcache::window_property_test
