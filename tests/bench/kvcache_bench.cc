// The radix pool and the page allocator on prompts like those of a conversation trace.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "kvcache/radix_cache.h"

namespace tpsim::kvcache {
namespace {

constexpr std::uint32_t kPages = 1 << 22;

// 12,000-token prompts of 512-token blocks; every fourth continues an earlier one.
std::vector<TokenSequence> prompts(std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<TokenSequence> out;
  TokenId fresh = 0;
  for (std::size_t i = 0; i < count; ++i) {
    TokenSequence prompt;
    if (i > 0 && random() % 4 == 0) {
      prompt = out[random() % out.size()];
      prompt.truncate(prompt.size() / 2);
    }
    while (prompt.size() < 12000) {
      prompt.append({fresh, 512});
      fresh += 512 * (1 + random() % 2);
    }
    out.push_back(std::move(prompt));
  }
  return out;
}

void BM_InsertMatchEvict(benchmark::State& state) {
  const std::vector<TokenSequence> all = prompts(12000);
  for (auto _ : state) {
    PageAllocator allocator(kPages, 1, PageAllocator::with_slack(kPages));
    RadixCache radix({1, EvictionPolicy::kLru}, &allocator, nullptr);
    std::vector<PageRun> pages;
    for (const TokenSequence& prompt : all) {
      const auto length = static_cast<std::uint32_t>(prompt.size());
      const auto match = radix.match_prefix(prompt, length - 1, 0);
      const std::uint32_t needed = length - match.matched_tokens;
      if (allocator.available_pages() < needed) radix.evict(kKvPool, needed);
      pages.clear();
      radix.collect_pages(match.last_node, pages);
      allocator.alloc(needed, pages);
      radix.insert(prompt, length, pages, 0, 0);
    }
  }
  state.SetItemsProcessed(state.iterations() * 12000);
}
BENCHMARK(BM_InsertMatchEvict)->Unit(benchmark::kMillisecond);

void BM_Match(benchmark::State& state) {
  const bool with_cursor = state.range(0) != 0;
  const std::vector<TokenSequence> all = prompts(1000);
  RadixCache radix({1, EvictionPolicy::kLru}, nullptr, nullptr);
  for (const TokenSequence& prompt : all) {
    const std::vector<PageRun> pages = {{0, static_cast<std::uint32_t>(prompt.size())}};
    radix.insert(prompt, static_cast<std::uint32_t>(prompt.size()), pages, 0, 0);
  }
  std::vector<RadixCache::MatchCursor> cursors(all.size());
  std::size_t i = 0;
  for (auto _ : state) {
    i = (i + 1) % all.size();
    RadixCache::MatchCursor fresh;
    const auto length = static_cast<std::uint32_t>(all[i].size());
    benchmark::DoNotOptimize(radix.match_prefix(all[i], length, 0, with_cursor ? cursors[i] : fresh));
  }
}
BENCHMARK(BM_Match)->ArgName("cursor")->Arg(0)->Arg(1);

void BM_GrowByOnePageEach(benchmark::State& state) {
  PageAllocator allocator(kPages, 1, PageAllocator::with_slack(kPages));
  std::vector<std::uint32_t> last(64);
  std::vector<PageRun> runs;
  const auto start = [&] {
    allocator.clear();
    for (std::uint32_t& page : last) {
      runs.clear();
      allocator.alloc(2000, runs);
      page = runs.back().first + runs.back().count - 1;
    }
  };
  start();
  for (auto _ : state) {
    if (allocator.available_pages() < 64) start();
    for (std::uint32_t& page : last) page = allocator.alloc_next(page);
  }
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(BM_GrowByOnePageEach);

}  // namespace
}  // namespace tpsim::kvcache
