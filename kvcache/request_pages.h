// How a prefix cache gives back pages of requests: to the KV pool, and their window parts to the pool of
// sliding-window layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "kvcache/pools/page_run.h"
#include "kvcache/pools/window_pages.h"
#include "kvcache/prefix_cache.h"
#include "kvcache/req_to_token_pool.h"

namespace tpsim::kvcache {

class RequestPages {
 public:
  // `window_pages` may be null: without window layers. All of them must outlive this.
  RequestPages(std::uint32_t page_size, PageAllocator* allocator, ReqToTokenPool* rows,
               WindowPages* window_pages)
      : page_size_(page_size), allocator_(allocator), rows_(rows), window_pages_(window_pages) {}

  // Pages [first_page, end_page) of `row`, and what they still have of window parts. The row keeps naming
  // them.
  void free(std::uint32_t row, std::uint32_t first_page, std::uint32_t end_page) {
    if (first_page >= end_page) return;
    scratch_.clear();
    rows_->copy_out(row, first_page, end_page - first_page, scratch_);
    for (const PageRun& run : scratch_) {
      if (window_pages_ != nullptr) window_pages_->free_rest(run);
      allocator_->free(run);
    }
  }
  // The window parts of the request's own pages, but for those that reach into its last `kept` tokens before
  // `pre_len`.
  void free_windows(PrefixCache::RequestState& req, std::int64_t pre_len, std::int64_t kept) {
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

 private:
  std::uint32_t page_size_;
  PageAllocator* allocator_;
  ReqToTokenPool* rows_;
  WindowPages* window_pages_;
  std::vector<PageRun> scratch_;  // kept, so that steady use does not allocate
};

}  // namespace tpsim::kvcache
