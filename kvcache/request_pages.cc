#include "kvcache/request_pages.h"

#include <algorithm>

namespace tpsim::kvcache {

void RequestPages::free(std::uint32_t row, std::uint32_t first_page, std::uint32_t end_page) {
  if (first_page >= end_page) return;
  scratch_.clear();
  rows_->copy_out(row, first_page, end_page - first_page, scratch_);
  for (const PageRun& run : scratch_) {
    if (window_pages_ != nullptr) window_pages_->free_rest(run);
    allocator_->free(run);
  }
}

void RequestPages::free_windows(PrefixCache::RequestState& req, std::int64_t pre_len, std::int64_t kept) {
  const std::int64_t page = page_size_;
  const std::int64_t first = std::max(req.window_evicted_len, req.cache_protected_len);
  const std::int64_t end = std::max(first, pre_len - kept) / page * page;
  req.window_evicted_len = static_cast<std::uint32_t>(first);
  if (end <= first) return;
  scratch_.clear();
  rows_->copy_out(req.row, static_cast<std::uint32_t>(first / page),
                  static_cast<std::uint32_t>((end - first) / page), scratch_);
  for (const PageRun& run : scratch_) window_pages_->free(run);
  req.window_evicted_len = static_cast<std::uint32_t>(end);
}

}  // namespace tpsim::kvcache
