#include "kvcache/req_to_token_pool.h"

#include <algorithm>
#include <functional>

namespace tpsim::kvcache {
std::uint32_t ReqToTokenPool::alloc_row() {
  if (!free_.empty()) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const std::uint32_t row = free_.back();
    free_.pop_back();
    return row;
  }
  if (max_rows_ != 0 && rows_.size() >= max_rows_) return kNoRow;
  rows_.emplace_back();
  return static_cast<std::uint32_t>(rows_.size() - 1);
}

void ReqToTokenPool::free_row(std::uint32_t row) {
  rows_[row].runs.clear();
  rows_[row].pages = 0;
  free_.push_back(row);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

void ReqToTokenPool::truncate(std::uint32_t row, std::uint32_t pages) {
  Row& r = rows_[row];
  while (r.pages > pages) {
    PageRun& last = r.runs.back();
    const std::uint32_t excess = r.pages - pages;
    if (last.count > excess) {
      last.count -= excess;
      r.pages = pages;
    } else {
      r.pages -= last.count;
      r.runs.pop_back();
    }
  }
}

void ReqToTokenPool::copy_out(std::uint32_t row, std::uint32_t first_page, std::uint32_t count,
                              std::vector<PageRun>& out) const {
  append_slice(rows_[row].runs, first_page, count, out);
}

}  // namespace tpsim::kvcache
