#include "kvcache/page_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace tpsim::kvcache {
namespace {

// Room left behind an allocation for the tokens that its request will generate.
constexpr std::uint32_t kGapTokens = 1024;

std::uint64_t mask(std::uint32_t bit, std::uint32_t count) {
  return (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << bit;
}

}  // namespace

PageAllocator::PageAllocator(std::uint32_t num_pages, std::uint32_t page_size)
    : num_pages_(num_pages), page_size_(page_size), gap_(std::max(1U, kGapTokens / std::max(1U, page_size))) {
  clear();
}

void PageAllocator::clear() {
  const std::uint32_t words = (num_pages_ + 63) / 64;
  words_.assign(words, ~std::uint64_t{0});
  if (num_pages_ % 64 != 0) words_.back() = mask(0, num_pages_ % 64);
  summary_.assign((words + 63) / 64, ~std::uint64_t{0});
  if (words % 64 != 0) summary_.back() = mask(0, words % 64);
  available_ = num_pages_;
  rover_ = 0;
}

std::uint32_t PageAllocator::find_free(std::uint32_t from) const {
  if (from >= num_pages_) return kNoPage;
  std::uint32_t word = from / 64;
  const std::uint64_t here = words_[word] & (~std::uint64_t{0} << (from % 64));
  if (here != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(here));
  if (++word >= words_.size()) return kNoPage;
  std::uint32_t group = word / 64;
  std::uint64_t candidates = summary_[group] & (~std::uint64_t{0} << (word % 64));
  while (candidates == 0) {
    if (++group >= summary_.size()) return kNoPage;
    candidates = summary_[group];
  }
  word = group * 64 + static_cast<std::uint32_t>(std::countr_zero(candidates));
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[word]));
}

std::uint32_t PageAllocator::free_run_length(std::uint32_t page, std::uint32_t limit) const {
  std::uint32_t length = 0;
  while (length < limit && page + length < num_pages_) {
    const std::uint32_t at = page + length;
    const std::uint64_t rest = words_[at / 64] >> (at % 64);
    const std::uint32_t bits = 64 - at % 64;
    const auto ones = static_cast<std::uint32_t>(std::countr_one(rest));
    length += std::min(ones, bits);
    if (ones < bits) break;
  }
  return std::min(length, limit);
}

void PageAllocator::take(std::uint32_t page, std::uint32_t count) {
  available_ -= count;
  while (count > 0) {
    const std::uint32_t word = page / 64;
    const std::uint32_t step = std::min(count, 64 - page % 64);
    words_[word] &= ~mask(page % 64, step);
    if (words_[word] == 0) summary_[word / 64] &= ~(std::uint64_t{1} << (word % 64));
    page += step;
    count -= step;
  }
}

// Gaps are worth it only while most of the pool is free; later they fill up.
void PageAllocator::leave_gap(std::uint32_t end) {
  const bool roomy = available_ > num_pages_ / 4 && num_pages_ > 16 * gap_;
  rover_ = end + (roomy ? gap_ : 0);
  if (rover_ >= num_pages_) rover_ = 0;
}

bool PageAllocator::alloc(std::uint32_t pages, std::vector<PageRun>& out) {
  if (pages > available_) return false;
  if (pages == 0) return true;
  std::uint32_t end = rover_;
  while (pages > 0) {
    std::uint32_t page = find_free(end);
    if (page == kNoPage) page = find_free(0);
    const std::uint32_t count = free_run_length(page, pages);
    take(page, count);
    if (!out.empty() && out.back().first + out.back().count == page) {
      out.back().count += count;
    } else {
      out.push_back({page, count});
    }
    end = page + count;
    pages -= count;
  }
  leave_gap(end);
  return true;
}

std::uint32_t PageAllocator::alloc_next(std::uint32_t last_page) {
  if (available_ == 0) return kNoPage;
  std::uint32_t page = last_page + 1;
  if (page < num_pages_ && !is_allocated(page)) {
    take(page, 1);
    return page;
  }
  page = find_free(rover_);
  if (page == kNoPage) page = find_free(0);
  take(page, 1);
  leave_gap(page + 1);
  return page;
}

void PageAllocator::free(PageRun run) {
  if (run.first >= num_pages_ || run.count > num_pages_ - run.first) {
    throw std::logic_error(fmt::format("pages {} to {} are freed, but the pool has {}", run.first,
                                       std::uint64_t{run.first} + run.count - 1, num_pages_));
  }
  std::uint32_t page = run.first;
  std::uint32_t count = run.count;
  while (count > 0) {
    const std::uint32_t word = page / 64;
    const std::uint32_t step = std::min(count, 64 - page % 64);
    const std::uint64_t bits = mask(page % 64, step);
    if ((words_[word] & bits) != 0) {
      throw std::logic_error(fmt::format("a page of {} to {} is freed twice", page, page + step - 1));
    }
    words_[word] |= bits;
    summary_[word / 64] |= std::uint64_t{1} << (word % 64);
    page += step;
    count -= step;
  }
  available_ += run.count;
}

}  // namespace tpsim::kvcache
