// Hands out the pages of a KV pool.
//
// Pages are numbers 0 … num_pages-1; 64 neighbours are a block. Allocation goes round the pool and takes
// whole free blocks first, so that the rest of a request's last block, and while there is room a gap after
// it, stays free for the pages that the request grows by. Sequences then stay few runs even in a pool that
// is full of cached prefixes, and what is evicted is long runs again.
//
// The address space may be larger than the pool: at most num_pages() pages are handed out at a time, but
// their numbers go up to address_space() - 1. The slack is what keeps runs long when the pool is full, as it
// is all the time under a radix pool that evicts only what is needed next.
//
// Memory follows the page numbers that were handed out, not the pool.
//
// Invariants: num_pages() less available_pages() addresses are taken; free_blocks_ holds the blocks that are
// free altogether.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_run.h"
#include "kvcache/pools/summary_bitset.h"

namespace tpsim::kvcache {

class PageAllocator {
 public:
  static constexpr std::uint32_t kNoPage = SummaryBitset::kNone;
  static constexpr std::uint32_t kBlock = 64;  // pages: a word of the bitmap

  // page_size: tokens of a page; decides how large a gap is worth leaving. addresses: 0 = num_pages.
  PageAllocator(std::uint32_t num_pages, std::uint32_t page_size, std::uint32_t addresses = 0);

  // Addresses that are worth their memory for a pool of `num_pages`: a quarter more.
  static std::uint32_t with_slack(std::uint32_t num_pages) { return num_pages + num_pages / 4; }

  std::uint32_t page_size() const { return page_size_; }
  std::uint32_t num_pages() const { return num_pages_; }
  std::uint32_t address_space() const { return addresses_; }
  std::uint32_t available_pages() const { return available_; }

  // Appends runs that together hold `pages` pages, merging into out.back() where they touch. Returns false
  // and changes nothing if fewer are free.
  bool alloc(std::uint32_t pages, std::vector<PageRun>& out);
  // One page for a sequence that ends in `last_page`: the page after it if that is free, else one with room
  // after it if there is any. kNoPage if the pool is full. No heap allocation but where a page number is
  // taken that lies beyond all before.
  std::uint32_t alloc_next(std::uint32_t last_page) {
    if (available_ == 0) [[unlikely]]
      return kNoPage;
    return take_page(last_page + 1) ? last_page + 1 : alloc_elsewhere();
  }
  // Takes this very page. False, and nothing changed, where it is not free.
  bool take_page(std::uint32_t page) {
    if (available_ == 0 || page >= addresses_) [[unlikely]]
      return false;
    const std::uint64_t before = free_.take(page);
    if (before == 0) [[unlikely]]
      return false;
    --available_;
    if (before == ~std::uint64_t{0}) [[unlikely]]
      free_blocks_.reset(page / kBlock);
    return true;
  }
  // Free pages from `page` on without a gap; `limit` at most.
  std::uint32_t free_run_length(std::uint32_t page, std::uint32_t limit) const;
  // Throws std::logic_error, and changes nothing, if a page of `run` is free already or beyond the pool.
  void free(PageRun run);
  // Every page is free again.
  void clear();
  bool is_allocated(std::uint32_t page) const { return !free_.test(page); }

  auto state() { return std::tie(available_, rover_, free_, free_blocks_); }

 private:
  std::uint32_t alloc_elsewhere();
  void take_blocks(std::uint32_t first, std::uint32_t count);
  void set_block(std::uint32_t block, std::uint64_t bits);
  void take(std::uint32_t page, std::uint32_t count);
  void leave_gap(std::uint32_t end);
  std::uint32_t take_fragments(std::uint32_t from, std::uint32_t pages, std::vector<PageRun>& out);
  std::uint32_t take_from_longest_run();

  std::uint32_t num_pages_;
  std::uint32_t addresses_;
  std::uint32_t page_size_;
  std::uint32_t gap_;  // pages
  std::uint32_t available_ = 0;
  std::uint32_t rover_ = 0;
  SummaryBitset free_;         // pages
  SummaryBitset free_blocks_;  // blocks that are free altogether
};

}  // namespace tpsim::kvcache
