// The pool of the sliding-window layers, beside the pool of the others (SGLang's SWATokenToKVPoolAllocator).
//
// A page of the KV pool holds its tokens' KV in full-attention layers; in window layers they need a page of
// this pool, and only while a window reaches them. SGLang pairs the two by a table
// (full_to_swa_index_mapping). Here the pair has one name: a page of the KV pool has its window part or has
// lost it, and of this pool only the number of free pages matters.
//
// Invariants: available_pages() is num_pages() less the pages with a window part.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_run.h"

namespace tpsim::kvcache {

class WindowPages {
 public:
  // num_pages: of this pool. addresses: page numbers of the KV pool go up to addresses - 1.
  WindowPages(std::uint32_t num_pages, std::uint32_t addresses);

  std::uint32_t num_pages() const { return num_pages_; }
  std::uint32_t available_pages() const { return available_; }
  bool has(std::uint32_t page) const { return (live_[page / 64] >> (page % 64) & 1) != 0; }
  // Of the pages of `run`.
  std::uint32_t count(PageRun run) const;

  // Every page of `run` gets its window part. Throws std::logic_error where one has it or the pool is short.
  void alloc(PageRun run);
  // Every page of `run` loses it. Throws std::logic_error where one has none.
  void free(PageRun run);
  // The same of pages that may have lost it before.
  void free_rest(PageRun run) { change(run, /*live=*/false); }

  auto state() { return std::tie(available_, live_); }

 private:
  std::uint32_t change(PageRun run, bool live);  // returns how many pages changed

  std::uint32_t num_pages_;
  std::uint32_t available_;
  std::vector<std::uint64_t> live_;  // a bit for each page of the KV pool
};

}  // namespace tpsim::kvcache
