// One million random operations on the radix pool and on a plain reference, with equal results after each.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "kvcache/radix_cache.h"
#include "tests/unit/fewer_operations.h"
#include "tests/unit/kvcache/reference_radix.h"

namespace tpsim::kvcache {
namespace {

Tokens expand(const TokenSequence& sequence) {
  Tokens out;
  for (const TokenRun& run : sequence.runs()) {
    for (std::uint32_t i = 0; i < run.length; ++i) out.push_back(run.first + i);
  }
  return out;
}

Slots expand(const std::vector<PageRun>& runs, std::uint32_t page_size, std::size_t tokens) {
  Slots out;
  for (const PageRun& run : runs) {
    for (std::uint32_t i = 0; i < run.count * page_size; ++i) out.push_back(run.first * page_size + i);
  }
  out.resize(std::min(out.size(), tokens));
  return out;
}

class Duel {
 public:
  // `newest`: the rules of SGLang 0.5.23, else those before. `bigrams`: keys are pairs of neighbouring
  // tokens.
  Duel(std::uint64_t seed, std::uint32_t page_size, EvictionPolicy policy, bool newest, bool bigrams)
      : random_(seed),
        newest_(newest),
        bigrams_(bigrams),
        page_size_(page_size),
        allocator_(kPages, page_size),
        radix_({page_size, policy, newest, newest, newest, bigrams}, &allocator_, &rows_),
        reference_(page_size, policy, newest) {
    for (int i = 0; i < 12; ++i) cursors_.emplace_back();
    for (int i = 0; i < 12; ++i) new_prompt(i);
  }

  void step() {
    const std::uint64_t pick = random_() % 40;
    if (pick < 12) {
      match();
    } else if (pick < 22) {
      admit();
    } else if (pick < 29) {
      extend();
    } else if (pick < 39) {
      finish();
    } else {
      evict(random_() % (kPages * page_size_ / 8));
    }
  }

  void check(bool thoroughly) {
    ASSERT_EQ(radix_.kept(kKvPool).evictable, reference_.size(false));
    ASSERT_EQ(radix_.kept(kKvPool).locked, reference_.size(true));
    std::uint64_t held = 0;
    for (const Live& live : live_) {
      held += rows_.num_pages(live.state.row) - live.state.cache_protected_len / page_size_;
    }
    ASSERT_EQ(held + radix_.kept(kKvPool).total() / page_size_ + allocator_.available_pages(), kPages);
    if (!thoroughly) return;
    radix_.check_invariants();
    std::set<std::uint32_t> taken = reference_.pages();
    for (const Live& live : live_) {
      for (const std::uint32_t slot : live.slots) taken.insert(slot / page_size_);
    }
    for (std::uint32_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(allocator_.is_allocated(page), taken.contains(page)) << "page " << page;
    }
  }

 private:
  static constexpr std::uint32_t kPages = 400;

  struct Live {
    RadixCache::RequestState state;
    TokenSequence tokens;
    std::uint32_t filled = 0;
    Slots slots;  // as the reference believes
    ReferenceRadix::Node* node;
    std::size_t protected_len = 0;
    std::size_t inserted_len = 0;
  };

  // What the reference takes for the first `length` tokens: one number for each pair where pairs are keys.
  Tokens key_of(const TokenSequence& tokens, std::size_t length) const {
    Tokens key = expand(tokens);
    key.resize(length);
    if (!bigrams_ || key.empty()) return key;
    for (std::size_t i = 0; i + 1 < key.size(); ++i) key[i] = key[i] * 1'000'000 + key[i + 1];
    key.pop_back();
    return key;
  }
  std::size_t whole_pages(std::size_t units) const { return units / page_size_ * page_size_; }

  // Prompts that share prefixes: the continuation of another one, cut somewhere.
  void new_prompt(std::size_t i) {
    if (prompts_.size() <= i) {
      prompts_.resize(i + 1);
      spaces_.resize(i + 1);
    }
    TokenSequence prompt;
    if (random_() % 4 != 0) {
      prompt = prompts_[random_() % prompts_.size()];
      prompt.truncate(random_() % (prompt.size() + 1));
    }
    const std::size_t most = 40 * page_size_;
    while (prompt.size() < most && random_() % 12 != 0) {
      prompt.append({random_() % 6 * 100, static_cast<std::uint32_t>(1 + random_() % (4 * page_size_))});
    }
    if (prompt.empty()) prompt.append({7, 1 + static_cast<std::uint32_t>(random_() % 9)});
    prompts_[i] = std::move(prompt);
    spaces_[i] = random_() % 5 == 0 ? 1 : 0;
    cursors_[i] = {};
  }

  void match() {
    const std::size_t i = random_() % prompts_.size();
    if (random_() % 4 == 0) new_prompt(i);
    const TokenSequence& prompt = prompts_[i];
    const auto length = static_cast<std::uint32_t>(prompt.size());
    // Half of the matches go through a cursor that stays with its prompt.
    const bool with_cursor = random_() % 2 == 0;
    const RadixCache::MatchResult got = with_cursor
                                            ? radix_.match_prefix(prompt, length, spaces_[i], cursors_[i])
                                            : radix_.match_prefix(prompt, length, spaces_[i]);
    const ReferenceRadix::Match want = reference_.match(key_of(prompt, length), spaces_[i]);
    ASSERT_EQ(got.matched_tokens, want.slots.size());
    std::vector<PageRun> pages;
    radix_.collect_pages(got.last_node, pages);
    ASSERT_EQ(expand(pages, page_size_, got.matched_tokens), want.slots);
  }

  void admit() {
    if (live_.size() >= 6) return finish();
    Live live;
    const std::size_t i = random_() % prompts_.size();
    if (random_() % 2 == 0) new_prompt(i);
    live.tokens = prompts_[i];
    live.state.extra_key = spaces_[i];
    live.state.priority = static_cast<std::int64_t>(random_() % 4);
    live.state.prompt_len = static_cast<std::uint32_t>(1 + random_() % live.tokens.size());
    const auto limit = static_cast<std::uint32_t>(live.tokens.size() - 1);
    const RadixCache::MatchResult got = radix_.match_prefix(live.tokens, limit, live.state.extra_key);
    const ReferenceRadix::Match want = reference_.match(key_of(live.tokens, limit), live.state.extra_key);
    ASSERT_EQ(got.matched_tokens, want.slots.size());
    radix_.inc_lock_ref(got.last_node);
    ReferenceRadix::lock(want.node, 1);
    live.state.last_node = got.last_node;
    live.state.cache_protected_len = got.matched_tokens;
    live.node = want.node;
    live.protected_len = got.matched_tokens;
    live.state.row = rows_.alloc_row();
    std::vector<PageRun> pages;
    radix_.collect_pages(got.last_node, pages);
    live.filled = got.matched_tokens;
    for (const PageRun& run : pages) rows_.append(live.state.row, run);
    live.slots = want.slots;
    live_.push_back(std::move(live));
    grow(live_.back(),
         static_cast<std::uint32_t>(random_() % (live_.back().tokens.size() - live_.back().filled) + 1));
  }

  // Computes `count` more tokens of `live`: pages are taken, evicting where none are free.
  void grow(Live& live, std::uint32_t count) {
    const std::uint32_t filled = live.filled + count;
    const std::uint32_t pages = (filled + page_size_ - 1) / page_size_ - rows_.num_pages(live.state.row);
    if (allocator_.available_pages() < pages) evict((pages - allocator_.available_pages()) * page_size_);
    if (allocator_.available_pages() < pages) return;
    std::vector<PageRun> fresh;
    ASSERT_TRUE(allocator_.alloc(pages, fresh));
    for (const PageRun& run : fresh) rows_.append(live.state.row, run);
    for (const std::uint32_t slot : expand(fresh, page_size_, std::size_t{pages} * page_size_)) {
      live.slots.push_back(slot);
    }
    live.filled = filled;
  }

  void extend() {
    if (live_.empty()) return;
    Live& live = live_[random_() % live_.size()];
    if (live.filled < live.tokens.size()) {
      grow(live, static_cast<std::uint32_t>(random_() % (live.tokens.size() - live.filled) + 1));
    }
    unfinished(live);
  }

  void unfinished(Live& live) {
    const bool chunked = random_() % 2 == 0;
    const std::uint32_t changed = radix_.cache_unfinished_req(live.state, live.tokens, live.filled, chunked);
    ASSERT_LE(changed, rows_.num_pages(live.state.row));
    Tokens key = key_of(live.tokens, live.filled);
    key.resize(whole_pages(key.size()));
    const std::size_t known = insert(live, key, chunked);
    const ReferenceRadix::Match again = reference_.match(key, live.state.extra_key);
    ASSERT_EQ(again.slots.size(), key.size());
    std::copy(again.slots.begin(), again.slots.end(), live.slots.begin());
    ReferenceRadix::lock(live.node, -1);
    // SGLang locks the node that holds the whole key; the empty key locks nothing.
    live.node = again.node;
    ReferenceRadix::lock(live.node, 1);
    live.protected_len = key.size();
    ASSERT_EQ(live.state.cache_protected_len, key.size());
    ASSERT_EQ(known > 0 || key.empty() || live.protected_len > 0, true);
    check_row(live);
  }

  // What the reference does for a request: its sequence, then, by the newest rules, a cut at its prompt's
  // end.
  std::size_t insert(Live& live, const Tokens& key, bool chunked) {
    const std::int64_t priority = live.state.priority;
    const std::uint32_t space = live.state.extra_key;
    const std::size_t whole = whole_pages(key.size());
    std::size_t counted = chunked ? key.size() : 0;
    if (newest_) counted = live.inserted_len;
    const std::size_t known = reference_.insert(key, live.slots, space, priority, counted);
    live.inserted_len = std::max(live.inserted_len, whole);
    const std::size_t prompt = whole_pages(live.state.prompt_len - (bigrams_ ? 1 : 0));
    if (newest_ && prompt > 0 && prompt < whole) {
      const Tokens head(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(prompt));
      reference_.insert(head, live.slots, space, priority + 1, prompt);
    }
    return known;
  }

  void check_row(const Live& live) {
    const auto runs = rows_.runs(live.state.row);
    const std::vector<PageRun> pages(runs.begin(), runs.end());
    ASSERT_EQ(expand(pages, page_size_, live.slots.size()), live.slots);
  }

  void finish() {
    if (live_.empty()) return;
    const std::size_t i = random_() % live_.size();
    Live live = std::move(live_[i]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    const bool is_insert = random_() % 4 != 0;
    radix_.cache_finished_req(live.state, live.tokens, live.filled, is_insert);
    rows_.free_row(live.state.row);
    if (is_insert) {
      insert(live, key_of(live.tokens, live.filled), /*chunked=*/false);
    }
    ReferenceRadix::lock(live.node, -1);
  }

  void evict(std::size_t tokens) {
    const std::uint32_t before = allocator_.available_pages();
    const std::uint64_t evicted = radix_.evict(kKvPool, tokens);
    const Slots freed = reference_.evict(tokens);
    ASSERT_EQ(evicted, freed.size());
    ASSERT_EQ(allocator_.available_pages() - before, freed.size() / page_size_);
    for (const std::uint32_t slot : freed) ASSERT_FALSE(allocator_.is_allocated(slot / page_size_));
  }

  std::mt19937_64 random_;
  bool newest_;
  bool bigrams_;
  std::uint32_t page_size_;
  PageAllocator allocator_;
  ReqToTokenPool rows_;
  RadixCache radix_;
  ReferenceRadix reference_;
  std::vector<TokenSequence> prompts_;
  std::vector<std::uint32_t> spaces_;
  std::vector<RadixCache::MatchCursor> cursors_;
  std::vector<Live> live_;
};

struct Parameters {
  std::uint32_t page_size;
  EvictionPolicy policy;
  int operations;
};

class RadixProperty : public ::testing::TestWithParam<Parameters> {};

TEST_P(RadixProperty, EqualsThePlainReferenceAfterEveryOperation) {
  const Parameters p = GetParam();
  constexpr int kPerSeed = 5000;
  for (int start = 0; start < p.operations; start += kPerSeed) {
    const std::uint64_t seed =
        1000003ULL * p.page_size + 101 * static_cast<unsigned>(p.policy) + static_cast<std::uint64_t>(start);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int number = start / kPerSeed;
    Duel duel(seed, p.page_size, p.policy, /*newest=*/number % 2 == 0, /*bigrams=*/number % 3 == 1);
    for (int i = 0; i < kPerSeed; ++i) {
      duel.step();
      duel.check(i % 50 == 0);
      if (HasFatalFailure()) FAIL() << "operation " << i;
    }
  }
}

// 12 x 85,000 = 1,020,000 operations at page sizes 1 and 16, and a smaller run at 64. The sanitizers' builds
// run a tenth of that.
constexpr int kOperations = kFewerOperations ? 10000 : 85000;
constexpr EvictionPolicy kPolicies[] = {
    EvictionPolicy::kLru,  EvictionPolicy::kLfu,      EvictionPolicy::kFifo, EvictionPolicy::kMru,
    EvictionPolicy::kFilo, EvictionPolicy::kPriority, EvictionPolicy::kSlru};

std::vector<Parameters> all_parameters() {
  std::vector<Parameters> out;
  for (const EvictionPolicy policy : kPolicies) {
    out.push_back({1, policy, kOperations});
    out.push_back({16, policy, kOperations});
    out.push_back({64, policy, 10000});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, RadixProperty, ::testing::ValuesIn(all_parameters()));

}  // namespace
}  // namespace tpsim::kvcache
