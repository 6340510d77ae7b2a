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

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_run.h"

namespace tpsim::kvcache {

// A set of small integers with fast search: a bitmap, a bitmap of its non-empty words, and so on up. Its
// memory grows with the largest member that was ever taken out, so that a huge set of which little is used
// stays small.
class SummaryBitset {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // Of members 0 … size-1, all of them in the set.
  explicit SummaryBitset(std::uint32_t size = 0) : size_(size) {}

  bool test(std::uint32_t i) const { return (word(i / 64) >> (i % 64) & 1) != 0; }
  // Members [64 word, 64 word + 64).
  std::uint64_t word(std::uint32_t word) const {
    return word < words_.size() ? words_[word] : untouched(word);
  }
  void set_word(std::uint32_t word, std::uint64_t bits) {
    if (word >= words_.size()) [[unlikely]]
      grow(word + 1);
    const bool had_members = words_[word] != 0;
    words_[word] = bits;
    if (had_members != (bits != 0)) summarize(word, 1, bits != 0);
  }
  // All of words first … first + count - 1 at once: `members` of them, or none. REQUIRES: they lie in one
  // word of the level above, first / 64 == (first + count - 1) / 64, and whole in the set.
  void set_words(std::uint32_t first, std::uint32_t count, bool members);
  // Takes out `i` where it is a member; returns what its word was before, 0 where it is none.
  std::uint64_t take(std::uint32_t i) {
    if (i / 64 >= words_.size()) [[unlikely]]
      return take_untouched(i);
    const std::uint64_t before = words_[i / 64];
    const std::uint64_t bit = std::uint64_t{1} << (i % 64);
    if ((before & bit) == 0) return 0;
    words_[i / 64] = before & ~bit;
    if (before == bit) [[unlikely]]
      summarize(i / 64, 1, false);
    return before;
  }
  void set(std::uint32_t i) { set_word(i / 64, word(i / 64) | std::uint64_t{1} << (i % 64)); }
  void reset(std::uint32_t i) { set_word(i / 64, word(i / 64) & ~(std::uint64_t{1} << (i % 64))); }

  // The first member at or after `from`, or kNone.
  std::uint32_t find(std::uint32_t from) const {
    const std::uint32_t first = from / 64;
    if (first < words_.size()) {
      const std::uint64_t here = words_[first] & (~std::uint64_t{0} << (from % 64));
      if (here != 0) return first * 64 + low_bit(here);
      const std::uint32_t word = find_word(first + 1);
      if (word != kNone) return word * 64 + low_bit(words_[word]);
    }
    // Nothing was ever taken out of what lies after the bitmap.
    const auto behind = static_cast<std::uint32_t>(std::min<std::size_t>(words_.size() * 64, size_));
    return std::max(from, behind) < size_ ? std::max(from, behind) : kNone;
  }

  auto state() { return std::tie(words_, summary_); }

 private:
  static std::uint32_t low_bit(std::uint64_t bits) {
    return static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  // A word that no member was taken out of.
  std::uint64_t untouched(std::uint32_t word) const {
    const std::uint64_t first = std::uint64_t{word} * 64;
    if (first >= size_) return 0;
    return size_ - first >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (size_ - first)) - 1;
  }
  // The first word at or after `from` that has members, or kNone.
  std::uint32_t find_word(std::uint32_t from) const;
  // Notes in the levels above that words have members now, or have none. REQUIRES: as set_words().
  void summarize(std::uint32_t word, std::uint32_t count, bool has_members);
  std::uint64_t take_untouched(std::uint32_t i);
  // Makes room for `words` words, and for half as many again: what is allocated goes round the pool.
  void grow(std::size_t words);

  std::uint32_t size_;
  std::vector<std::uint64_t> words_;
  // A bit for each word of the level below that has members; the last level is one word.
  std::vector<std::vector<std::uint64_t>> summary_;
};

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
