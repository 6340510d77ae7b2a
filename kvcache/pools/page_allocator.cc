#include "kvcache/pools/page_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace tpsim::kvcache {
namespace {

// Room left behind an allocation for the tokens that its request will generate.
constexpr std::uint32_t kGapTokens = 1024;

std::uint64_t mask(std::uint32_t bit, std::uint32_t count) {
  return (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << bit;
}

}  // namespace

PageAllocator::PageAllocator(std::uint32_t num_pages, std::uint32_t page_size, std::uint32_t addresses)
    : num_pages_(num_pages),
      addresses_(std::max(num_pages, addresses)),
      page_size_(page_size),
      gap_(std::max(1U, kGapTokens / std::max(1U, page_size))) {
  clear();
}

void PageAllocator::clear() {
  free_ = SummaryBitset(addresses_);
  free_blocks_ = SummaryBitset(addresses_ / kBlock);  // a last block of fewer pages is never taken whole
  available_ = num_pages_;
  rover_ = 0;
}

void PageAllocator::set_block(std::uint32_t block, std::uint64_t bits) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  const std::uint64_t before = free_.word(block);
  free_.set_word(block, bits);
  if (bits == kAll) {
    free_blocks_.set(block);
  } else if (before == kAll) {
    free_blocks_.reset(block);
  }
}

std::uint32_t PageAllocator::free_run_length(std::uint32_t page, std::uint32_t limit) const {
  std::uint32_t length = 0;
  while (length < limit && page + length < addresses_) {
    const std::uint32_t at = page + length;
    const std::uint32_t bits = kBlock - at % kBlock;
    const auto ones = static_cast<std::uint32_t>(std::countr_one(free_.word(at / kBlock) >> (at % kBlock)));
    length += std::min(ones, bits);
    if (ones < bits) break;
  }
  return std::min(length, limit);
}

// Pages of one block.
void PageAllocator::take(std::uint32_t page, std::uint32_t count) {
  available_ -= count;
  const std::uint32_t block = page / kBlock;
  set_block(block, free_.word(block) & ~mask(page % kBlock, count));
}

// Whole free blocks. REQUIRES: as SummaryBitset::set_words().
void PageAllocator::take_blocks(std::uint32_t first, std::uint32_t count) {
  available_ -= count * kBlock;
  free_.set_words(first, count, false);
  free_blocks_.set_word(first / 64, free_blocks_.word(first / 64) & ~mask(first % 64, count));
}

// Gaps are worth it only while there is room; later they fill up.
void PageAllocator::leave_gap(std::uint32_t end) {
  const std::uint32_t free = available_ + (addresses_ - num_pages_);
  const bool roomy = free > addresses_ / 8 && addresses_ / 16 > gap_;
  rover_ = end + (roomy ? gap_ : 0);
  if (rover_ >= addresses_) rover_ = 0;
}

bool PageAllocator::alloc(std::uint32_t pages, std::vector<PageRun>& out) {
  if (pages > available_) return false;
  if (pages == 0) return true;
  std::uint32_t end = rover_;
  std::uint32_t block = (rover_ + kBlock - 1) / kBlock;
  bool wrapped = false;
  while (pages > 0) {
    block = free_blocks_.find(block);
    if (block == SummaryBitset::kNone) {
      if (wrapped) break;
      wrapped = true;
      block = 0;
      continue;
    }
    if (pages < kBlock) {
      take(block * kBlock, pages);
      append_run(out, {block * kBlock, pages});
      end = (block + 1) * kBlock;
      pages = 0;
      break;
    }
    const auto free =
        static_cast<std::uint32_t>(std::countr_one(free_blocks_.word(block / 64) >> (block % 64)));
    const std::uint32_t blocks = std::min(free, pages / kBlock);
    take_blocks(block, blocks);
    append_run(out, {block * kBlock, blocks * kBlock});
    block += blocks;
    end = block * kBlock;
    pages -= blocks * kBlock;
  }
  if (pages > 0) end = take_fragments(end, pages, out);
  leave_gap(end);
  return true;
}

// No whole block is left: takes what is left of others, a block at a time, from `from` on round the pool.
// Returns the page after the last one taken. REQUIRES: `pages` are free.
std::uint32_t PageAllocator::take_fragments(std::uint32_t from, std::uint32_t pages,
                                            std::vector<PageRun>& out) {
  available_ -= pages;
  while (pages > 0) {
    std::uint32_t page = free_.find(from);
    if (page == SummaryBitset::kNone) page = free_.find(0);
    const std::uint32_t block = page / kBlock;
    const std::uint64_t word = free_.word(block);
    std::uint64_t left = word & (~std::uint64_t{0} << (page % kBlock));
    while (left != 0 && pages > 0) {
      const std::uint32_t first = static_cast<std::uint32_t>(std::countr_zero(left));
      const std::uint32_t count = std::min(pages, static_cast<std::uint32_t>(std::countr_one(left >> first)));
      append_run(out, {block * kBlock + first, count});
      left &= ~mask(first, count);
      pages -= count;
      from = block * kBlock + first + count;
    }
    const std::uint64_t below = page % kBlock == 0 ? 0 : mask(0, page % kBlock);
    set_block(block, left | (word & below));
  }
  return from;
}

// A page that is not the next one. REQUIRES: one is free.
std::uint32_t PageAllocator::alloc_elsewhere() {
  std::uint32_t block = free_blocks_.find((rover_ + kBlock - 1) / kBlock);
  if (block == SummaryBitset::kNone) block = free_blocks_.find(0);
  if (block != SummaryBitset::kNone) {
    take(block * kBlock, 1);
    leave_gap((block + 1) * kBlock);
    return block * kBlock;
  }
  return take_from_longest_run();
}

// No block is free: among the next free runs, the longest is left to the sequence that asked.
std::uint32_t PageAllocator::take_from_longest_run() {
  constexpr int kTries = 8;
  std::uint32_t best = kNoPage;
  std::uint32_t best_length = 0;
  std::uint32_t at = rover_;
  for (int i = 0; i < kTries && best_length < kBlock / 2; ++i) {
    std::uint32_t page = free_.find(at);
    if (page == SummaryBitset::kNone) page = free_.find(0);
    const std::uint32_t length = free_run_length(page, kBlock);
    if (length > best_length) {
      best = page;
      best_length = length;
    }
    at = page + length < addresses_ ? page + length : 0;
  }
  take(best, 1);
  rover_ = best + best_length < addresses_ ? best + best_length : 0;
  return best;
}

void PageAllocator::free(PageRun run) {
  if (run.first >= addresses_ || run.count > addresses_ - run.first) {
    throw std::logic_error(fmt::format("pages {} to {} are freed, but the pool has {}", run.first,
                                       std::uint64_t{run.first} + run.count - 1, addresses_));
  }
  if (run.count == 0) return;
  const std::uint32_t last = run.first + run.count - 1;
  const std::uint32_t first_block = run.first / kBlock;
  const std::uint32_t last_block = last / kBlock;
  std::uint64_t head = ~std::uint64_t{0} << (run.first % kBlock);
  const std::uint64_t tail = mask(0, last % kBlock + 1);
  if (first_block == last_block) head &= tail;
  // Looks before it changes anything, so that a caller's mistake leaves the pool as it was.
  std::uint64_t free = free_.word(first_block) & head;
  for (std::uint32_t block = first_block + 1; block < last_block; ++block) free |= free_.word(block);
  if (first_block != last_block) free |= free_.word(last_block) & tail;
  if (free != 0) throw std::logic_error(fmt::format("a page of {} to {} is freed twice", run.first, last));
  set_block(first_block, free_.word(first_block) | head);
  for (std::uint32_t block = first_block + 1; block < last_block;) {
    const std::uint32_t blocks = std::min(last_block - block, 64 - block % 64);  // as set_words() takes them
    free_.set_words(block, blocks, true);
    free_blocks_.set_word(block / 64, free_blocks_.word(block / 64) | mask(block % 64, blocks));
    block += blocks;
  }
  if (first_block != last_block) set_block(last_block, free_.word(last_block) | tail);
  available_ += run.count;
}

std::uint32_t SummaryBitset::find_word(std::uint32_t from) const {
  for (std::size_t level = 0; level < summary_.size(); ++level) {
    std::uint32_t at = from / 64;
    if (at >= summary_[level].size()) return kNone;
    const std::uint64_t here = summary_[level][at] & (~std::uint64_t{0} << (from % 64));
    if (here != 0) {
      at = at * 64 + low_bit(here);
      while (level-- > 0) at = at * 64 + low_bit(summary_[level][at]);
      return at;
    }
    from = at + 1;
  }
  return kNone;
}

void SummaryBitset::summarize(std::uint32_t word, std::uint32_t count, bool has_members) {
  std::uint64_t changed = (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << (word % 64);
  for (std::vector<std::uint64_t>& level : summary_) {
    std::uint64_t& bits = level[word / 64];
    const bool had_members = bits != 0;
    bits = has_members ? bits | changed : bits & ~changed;
    has_members = bits != 0;
    if (has_members == had_members) return;
    word /= 64;
    changed = std::uint64_t{1} << (word % 64);
  }
}

void SummaryBitset::set_words(std::uint32_t first, std::uint32_t count, bool members) {
  if (first + count > words_.size()) [[unlikely]]
    grow(first + count);
  std::fill_n(words_.begin() + first, count, members ? ~std::uint64_t{0} : 0);
  summarize(first, count, members);
}

std::uint64_t SummaryBitset::take_untouched(std::uint32_t i) {
  const std::uint64_t before = test(i) ? word(i / 64) : 0;
  if (before != 0) reset(i);
  return before;
}

void SummaryBitset::grow(std::size_t words) {
  constexpr std::size_t kFewest = 1024;
  const std::size_t all = (std::size_t{size_} + 63) / 64;
  const std::size_t before = words_.size();
  words_.resize(std::min(all, std::max(words + words / 2, kFewest)));
  for (std::size_t i = before; i < words_.size(); ++i) words_[i] = untouched(static_cast<std::uint32_t>(i));
  summary_.clear();
  do {
    const std::vector<std::uint64_t>& below = summary_.empty() ? words_ : summary_.back();
    std::vector<std::uint64_t> above((below.size() + 63) / 64, 0);
    for (std::size_t i = 0; i < below.size(); ++i)
      above[i / 64] |= std::uint64_t{below[i] != 0 ? 1U : 0U} << (i % 64);
    summary_.push_back(std::move(above));
  } while (summary_.back().size() > 1);
}

}  // namespace tpsim::kvcache
