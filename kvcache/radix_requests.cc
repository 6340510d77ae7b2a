// What the radix tree does with requests: keeps what they have computed, and gives them what it had already.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "kvcache/radix_cache.h"

namespace tpsim::kvcache {

// Inserts what the request has computed, and cuts it at the end of the prompt, so that eviction can take the
// answer and leave the prompt.
RadixCache::InsertResult RadixCache::insert_sequence(RequestState& req, const TokenSequence& tokens,
                                                     std::uint32_t length, bool chunked, bool stays_locked) {
  std::uint32_t counted = chunked ? std::numeric_limits<std::uint32_t>::max() : 0;
  if (options_.request_hits_node_once) counted = req.inserted_len;
  adopted_.clear();
  // Its locked path is the beginning of what it has.
  const Prefix known = components_.empty() ? Prefix{req.last_node, req.cache_protected_len} : Prefix{};
  const InsertResult result =
      insert_units(tokens, length, pool_->runs(req.row), req.priority, req.extra_key, counted,
                   {.protected_len = req.cache_protected_len,
                    .window_evicted_len = req.window_evicted_len,
                    .state = states_ != nullptr ? &req.offer : nullptr,
                    .stays_locked = stays_locked},
                   known);
  req.inserted_len = std::max(req.inserted_len, length);
  const std::uint32_t prompt = whole_pages(req.prompt_len);
  const bool plain = components_.empty() || host_ != nullptr;
  if (options_.split_at_prompt_end && plain && prompt > 0 && prompt < length) {
    const std::int64_t above =
        req.priority == std::numeric_limits<std::int64_t>::max() ? req.priority : req.priority + 1;
    insert_units(tokens, prompt, {}, above, req.extra_key, /*counted_len=*/prompt, {}, known);
  }
  return result;
}

void RadixCache::cache_finished_req(RequestState& req, const TokenSequence& tokens,
                                    std::uint32_t committed_len, bool is_insert) {
  const std::uint32_t page = options_.page_size;
  const std::uint32_t pages = pool_->num_pages(req.row);
  const std::uint32_t length = std::min(committed_len, static_cast<std::uint32_t>(tokens.size()));
  const std::uint32_t aligned = whole_pages(cacheable_len(req, length));
  const std::uint32_t mine = req.cache_protected_len / page;
  if (is_insert && (states_ == nullptr || aligned > 0)) {
    const InsertResult result =
        insert_sequence(req, tokens, aligned, /*chunked=*/false, /*stays_locked=*/false);
    free_duplicates(req.row, mine, result.prefix_len / page);
    request_pages_.free(req.row, aligned / page, pages);
  } else {
    request_pages_.free(req.row, mine, pages);
  }
  dec_lock_ref(req.last_node, req.lock);
  req.last_node = kRoot;
  req.lock = {};
  req.cache_protected_len = req.inserted_len = 0;
  req.window_evicted_len = req.branching_len = 0;
}

std::uint32_t RadixCache::cache_unfinished_req(RequestState& req, const TokenSequence& tokens,
                                               std::uint32_t fill_len, bool chunked) {
  req.prefix_len = fill_len;
  const std::uint32_t pages = pool_->num_pages(req.row);
  const std::uint32_t page = options_.page_size;
  const std::uint32_t length = cacheable_len(req, fill_len);
  if (states_ != nullptr && length == 0) return pages;
  const bool branches = length == req.branching_len;
  if (window_ != nullptr) free_out_of_window(req, std::int64_t{length} - overlap() - 1);
  const std::uint32_t aligned = whole_pages(length);
  const std::uint32_t mine = req.cache_protected_len / page;
  const InsertResult result = insert_sequence(req, tokens, aligned, chunked, /*stays_locked=*/true);
  std::uint32_t changed = pages;
  const std::uint32_t known = result.prefix_len / page;
  if (known > mine) {
    // What the tree had already replaces the request's own pages.
    free_duplicates(req.row, mine, known);
    scratch_.clear();
    collect_pages(result.last_node, scratch_);
    tail_.clear();
    pool_->copy_out(req.row, known, pages - known, tail_);
    pool_->truncate(req.row, mine);
    adopted_.clear();
    append_slice(scratch_, mine, known - mine, adopted_);
    for (const PageRun& run : adopted_) pool_->append(req.row, run);
    for (const PageRun& run : tail_) pool_->append(req.row, run);
    changed = mine;
  }
  // SGLang matched again to find the node, before it had components.
  if (components_.empty()) touch(result.last_node, ++clock_);
  req.cache_protected_len = aligned;
  dec_lock_ref(req.last_node, req.lock);
  req.lock = inc_lock_ref(result.last_node);
  req.last_node = result.last_node;
  if (branches) {
    req.branching_len = 0;
    if (window_ != nullptr) free_out_of_window(req, std::int64_t{fill_len} - 1);
  }
  return changed;
}

}  // namespace tpsim::kvcache
