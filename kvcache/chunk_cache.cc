#include "kvcache/chunk_cache.h"

namespace tpsim::kvcache {

void ChunkCache::cache_finished_req(RequestState& req, const TokenSequence&, std::uint32_t, bool) {
  request_pages_.free(req.row, 0, rows_->num_pages(req.row));
  req.window_evicted_len = 0;
}

std::uint32_t ChunkCache::cache_unfinished_req(RequestState& req, const TokenSequence&,
                                               std::uint32_t fill_len, bool) {
  req.prefix_len = fill_len;
  return rows_->num_pages(req.row);
}

void ChunkCache::free_out_of_window(RequestState& req, std::int64_t pre_len) {
  if (pre_len - window_ <= req.window_evicted_len) return;
  request_pages_.free_windows(req, pre_len, window_);
}

}  // namespace tpsim::kvcache
