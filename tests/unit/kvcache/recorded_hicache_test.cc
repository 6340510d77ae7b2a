// What HiRadixCache of SGLang 0.5.12 did in random workloads (tests/references/record_hicache.py), done
// again: the same lengths matched, loaded and inserted, the same room in both pools after every step.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kvcache/host_tier.h"
#include "kvcache/radix_cache.h"

namespace tpsim::kvcache {
namespace recorded_hicache_test {
namespace {

constexpr std::uint32_t kBlock = 4;  // tokens of a key that stand together

WritePolicy policy_named(const std::string& name) {
  if (name == "write_back") return WritePolicy::kWriteBack;
  return name == "write_through" ? WritePolicy::kWriteThrough : WritePolicy::kWriteThroughSelective;
}

EvictionPolicy eviction_named(const std::string& name) {
  static const std::map<std::string, EvictionPolicy> names = {
      {"lru", EvictionPolicy::kLru},          {"lfu", EvictionPolicy::kLfu}, {"slru", EvictionPolicy::kSlru},
      {"fifo", EvictionPolicy::kFifo},        {"mru", EvictionPolicy::kMru}, {"filo", EvictionPolicy::kFilo},
      {"priority", EvictionPolicy::kPriority}};
  return names.at(name);
}

struct Transfers : HostTransfers {
  void write_through(NodeId node, std::uint32_t) override { writes.push_back(node); }
  void write_back(NodeId, std::uint32_t) override {}
  std::deque<NodeId> writes;
};

TokenSequence key_of(const std::string& blocks) {
  TokenSequence tokens;
  std::istringstream words(blocks);
  for (std::string word; std::getline(words, word, ',');) tokens.append({std::stoull(word) * 100, kBlock});
  return tokens;
}

// A workload.
class Replay {
 public:
  explicit Replay(std::istringstream& begin) {
    std::string seed, policy, eviction;
    std::uint32_t page = 0;
    std::uint64_t device = 0, host = 0;
    begin >> seed >> page >> policy >> eviction >> device >> host;
    page_ = page;
    device_ = device;
    pages_ =
        std::make_unique<PageAllocator>(static_cast<std::uint32_t>(device / page), page,
                                        PageAllocator::with_slack(static_cast<std::uint32_t>(device / page)));
    cache_ = std::make_unique<RadixCache>(
        RadixCache::Options{.page_size = page,
                            .policy = eviction_named(eviction),
                            .split_at_prompt_end = false,
                            .split_keeps_creation_time = false,
                            .request_hits_node_once = false,
                            .host = {.tokens = host, .write_policy = policy_named(policy)}},
        pages_.get(), nullptr, nullptr, nullptr, &transfers_);
  }

  // Returns what the recording says after the first bar and after the second.
  std::pair<std::string, std::string> step(const std::string& what, std::istringstream& words) {
    std::ostringstream result;
    if (what == "serve") {
      serve(words, result);
    } else if (what == "match") {
      const TokenSequence key = read_key(words);
      const auto match = cache_->match_prefix(key, static_cast<std::uint32_t>(key.size()), 0);
      result << match.matched_tokens << ' ' << match.full_matched_tokens - match.matched_tokens;
    } else {
      std::size_t number = 0;
      words >> number;
      if (what == "evict") result << cache_->evict(kKvPool, number);
      if (what == "unlock") {
        cache_->dec_lock_ref(locked_[number]);
        locked_.erase(locked_.begin() + static_cast<std::ptrdiff_t>(number));
      }
      for (; what == "writes" && number > 0; --number, transfers_.writes.pop_front())
        cache_->end_write(transfers_.writes.front());
      for (; what == "loads" && number > 0; --number, loads_.pop_front()) cache_->end_load(loads_.front());
    }
    cache_->check_invariants();
    const PrefixCache::Kept kept = cache_->kept(kKvPool);
    EXPECT_EQ(kept.total() + free_tokens(), device_);
    EXPECT_EQ(cache_->kept(kHostPool).total() + cache_->host().available(), cache_->host().capacity());
    std::ostringstream state;
    state << kept.evictable << ' ' << kept.locked << ' ' << free_tokens() << ' ' << cache_->host().available()
          << ' ' << nodes(PrefixCache::kRoot) << ' ' << transfers_.writes.size();
    return {result.str(), state.str()};
  }

 private:
  static TokenSequence read_key(std::istringstream& words) {
    std::string blocks;
    words >> blocks;
    return key_of(blocks);
  }
  std::uint64_t free_tokens() const { return std::uint64_t{pages_->available_pages()} * page_; }
  std::size_t nodes(RadixCache::NodeId node) const {
    std::size_t count = 1;
    for (const RadixCache::NodeId child : cache_->children(node)) count += nodes(child);
    return count;
  }

  void serve(std::istringstream& words, std::ostringstream& result) {
    const TokenSequence key = read_key(words);
    std::int64_t priority = 0;
    int holds = 0;
    words >> priority >> holds;
    const auto length = static_cast<std::uint32_t>(key.size()) / page_ * page_;
    const auto match = cache_->match_prefix(key, static_cast<std::uint32_t>(key.size()), 0);
    const std::uint32_t on_host = match.full_matched_tokens - match.matched_tokens;
    RadixCache::NodeId node = match.last_node;
    cache_->inc_lock_ref(node);
    std::uint32_t loaded = 0;
    if (on_host > 0) {
      loaded = cache_->load_back(match.full_node);
      if (loaded > 0) {
        loads_.push_back(match.full_node);
        cache_->dec_lock_ref(node);
        node = match.full_node;
        cache_->inc_lock_ref(node);
      }
    }
    const std::uint32_t prefix = match.matched_tokens + loaded;
    const std::uint32_t need = length - prefix;
    if (free_tokens() < need) cache_->evict(kKvPool, need);
    std::vector<PageRun> runs;
    cache_->collect_pages(node, runs);
    result << match.matched_tokens << ' ' << on_host << ' ' << loaded << ' ';
    if (pages_->alloc(need / page_, runs)) {
      const auto got = cache_->insert(key, length, runs, priority, 0);
      std::vector<PageRun> duplicates;
      append_slice(runs, prefix / page_, (got.prefix_len - prefix) / page_, duplicates);
      for (const PageRun& run : duplicates) pages_->free(run);
      result << got.prefix_len;
      cache_->dec_lock_ref(node);
      if (holds == 0) return;
      const auto again = cache_->match_prefix(key, static_cast<std::uint32_t>(key.size()), 0);
      cache_->inc_lock_ref(again.last_node);
      locked_.push_back(again.last_node);
    } else {
      result << '-';
      cache_->dec_lock_ref(node);
    }
  }

  std::uint32_t page_ = 1;
  std::uint64_t device_ = 0;  // tokens
  Transfers transfers_;
  std::unique_ptr<PageAllocator> pages_;
  std::unique_ptr<RadixCache> cache_;
  std::deque<RadixCache::NodeId> loads_;
  std::vector<RadixCache::NodeId> locked_;
};

TEST(RecordedHiCache, DoesWhatHiRadixCacheDid) {
  std::ifstream file(TPSIM_RECORDED_HICACHE);
  ASSERT_TRUE(file);
  std::unique_ptr<Replay> replay;
  std::string line, workload;
  int steps = 0, workloads = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "begin") {
      workload = line;
      replay = std::make_unique<Replay>(words);
      ++workloads;
      continue;
    }
    const std::size_t first = line.find(" | "), second = line.find(" | ", first + 3);
    std::istringstream done(line.substr(what.size(), first - what.size()));
    const auto [result, state] = replay->step(what, done);
    ASSERT_EQ(result, line.substr(first + 3, second - first - 3)) << workload << "\n" << line;
    ASSERT_EQ(state, line.substr(second + 3)) << workload << "\n" << line;
    ++steps;
  }
  EXPECT_GT(workloads, 30);
  EXPECT_GT(steps, 2000);
}

}  // namespace
}  // namespace recorded_hicache_test
}  // namespace tpsim::kvcache
