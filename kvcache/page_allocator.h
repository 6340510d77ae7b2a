// Hands out the pages of a KV pool.
//
// Pages are numbers 0 … num_pages-1. Free pages are bits of a bitmap with a summary above it. Allocation
// goes round the pool (next fit) and, while there is room, leaves a gap behind what it hands out, so that a
// sequence that grows by a page at a time finds the page after its last one free and stays one run.
//
// Invariant: available_pages() is the number of free bits.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/page_run.h"

namespace tpsim::kvcache {

class PageAllocator {
 public:
  static constexpr std::uint32_t kNoPage = 0xffffffffU;

  // page_size: tokens of a page, only carried along for callers.
  PageAllocator(std::uint32_t num_pages, std::uint32_t page_size);

  std::uint32_t page_size() const { return page_size_; }
  std::uint32_t num_pages() const { return num_pages_; }
  std::uint32_t available_pages() const { return available_; }

  // Appends runs that together hold `pages` pages, merging into out.back() where they touch. Returns false
  // and changes nothing if fewer are free.
  bool alloc(std::uint32_t pages, std::vector<PageRun>& out);
  // One page for a sequence that ends in `last_page`: the page after it if that is free, else one with room
  // behind it if there is any. kNoPage if the pool is full. No heap allocation.
  std::uint32_t alloc_next(std::uint32_t last_page);
  // Throws std::logic_error if a page of `run` is free already or beyond the pool.
  void free(PageRun run);
  // Every page is free again.
  void clear();
  bool is_allocated(std::uint32_t page) const { return (words_[page / 64] >> (page % 64) & 1) == 0; }

 private:
  std::uint32_t find_free(std::uint32_t from) const;  // first free page at or after `from`, or kNoPage
  std::uint32_t free_run_length(std::uint32_t page, std::uint32_t limit) const;
  void take(std::uint32_t page, std::uint32_t count);
  void leave_gap(std::uint32_t end);

  std::uint32_t num_pages_;
  std::uint32_t page_size_;
  std::uint32_t gap_;  // pages
  std::uint32_t available_ = 0;
  std::uint32_t rover_ = 0;
  std::vector<std::uint64_t> words_;    // bit set = page is free
  std::vector<std::uint64_t> summary_;  // bit set = the word has a free page
};

}  // namespace tpsim::kvcache
