#include "tests/unit/rank/parallel/random_stream.h"

#include <algorithm>

#include "proto/versions.h"

namespace tpsim::rank {

RandomStream::RandomStream(const Options& options)
    : options_(options), random_(options.seed), references_(options.num_pages, 0) {
  for (std::uint32_t row = options.num_rows; row-- > 0;) free_rows_.push_back(row);
}

std::uint32_t RandomStream::free_pages() const {
  return static_cast<std::uint32_t>(std::count(references_.begin(), references_.end(), 0u));
}

// The first free page at or behind `hint`, around the end.
std::uint32_t RandomStream::take_page(std::uint32_t hint) {
  for (std::uint32_t i = 0;; ++i) {
    const std::uint32_t page = (hint + i) % options_.num_pages;
    if (references_[page] != 0) continue;
    references_[page] = 1;
    return page;
  }
}

void RandomStream::free_request(const Request& request) {
  for (const std::uint32_t page : request.pages) --references_[page];
  by_row_.erase(request.row);
  free_rows_.push_back(request.row);
}

// Tells the ranks the pages of `request` from `start_page` on, as runs.
void RandomStream::edit(proto::ForwardBatch& batch, const Request& request, std::uint32_t start_page) const {
  std::uint32_t runs = 0;
  for (std::uint32_t i = start_page; i < request.pages.size(); ++i) {
    const int last = batch.run_num_pages_size() - 1;
    if (i > start_page && request.pages[i] == request.pages[i - 1] + 1) {
      batch.set_run_num_pages(last, batch.run_num_pages(last) + 1);
      continue;
    }
    batch.add_run_first_page(request.pages[i]);
    batch.add_run_num_pages(1);
    ++runs;
  }
  batch.add_table_req(request.row);
  batch.add_table_start_page(start_page);
  batch.add_table_num_runs(runs);
}

void RandomStream::extend(proto::ForwardBatch& batch, Request& request) {
  const std::uint32_t prefix = request.seq_len;
  const std::uint32_t length = 1 + below(options_.longest_extend);
  const auto start = static_cast<std::uint32_t>(request.pages.size());
  request.seq_len += length;
  request.prompt_len = request.seq_len;
  std::uint32_t hint = below(options_.num_pages);
  while (request.pages.size() < pages_for(request.seq_len)) {
    hint = take_page(hint);
    request.pages.push_back(hint);
    if (below(20) == 0) hint = below(options_.num_pages);
  }
  const bool fresh = !in_use_.contains(request.row);
  if (fresh || request.pages.size() > start) edit(batch, request, fresh ? 0 : start);
  batch.add_extend_req_pool_indices(request.row);
  batch.add_extend_prefix_lens(prefix);
  batch.add_extend_lens(length);
  in_use_[request.row] = request.pages;
  ended_with_prefill_.erase(request.row);
  extended_.insert(request.row);
}

bool RandomStream::start_request(proto::ForwardBatch& batch) {
  if (free_rows_.empty() || free_pages() < pages_for(options_.longest_extend) + options_.num_rows)
    return false;
  auto request = std::make_shared<Request>();
  request->row = free_rows_.back();
  free_rows_.pop_back();
  request->chunks_left = below(4) == 0 ? below(3) : 0;
  request->output_left = below(8) == 0 ? 0 : 1 + below(options_.longest_output);
  if (!decoding_.empty() && below(2) == 0) {  // begins like another request
    const Request& other = *decoding_[below(static_cast<std::uint32_t>(decoding_.size()))];
    const std::uint32_t shared = below(other.prompt_len / options_.page_size + 1);
    request->pages.assign(other.pages.begin(), other.pages.begin() + shared);
    request->seq_len = shared * options_.page_size;
    for (const std::uint32_t page : request->pages) ++references_[page];
  }
  by_row_[request->row] = request;
  // A row that was left in the decode set this very moment still counts as in use; the new request's edit
  // starts from its first page.
  in_use_.erase(request->row);
  extend(batch, *request);
  if (request->chunks_left > 0) {
    chunked_ = request;
  } else {
    prefilled_.push_back(request);
  }
  return true;
}

// Requests with nothing left to generate leave, before the pass is formed: their rows and pages are free
// for it.
void RandomStream::retire_finished(proto::ForwardBatch& batch) {
  std::erase_if(decoding_, [&](const std::shared_ptr<Request>& request) {
    const bool retract = below(200) == 0;
    if (request->output_left > 0 && !retract) return false;
    batch.add_decode_leave(request->row);
    in_use_.erase(request->row);
    free_request(*request);
    return true;
  });
  std::erase_if(prefilled_, [&](const std::shared_ptr<Request>& request) {
    if (request->output_left > 0) return false;
    ended_with_prefill_.insert(request->row);
    free_request(*request);
    return true;
  });
}

void RandomStream::decode(proto::ForwardBatch& batch) {
  for (const std::shared_ptr<Request>& request : decoding_) {
    --request->output_left;
    ++request->seq_len;
    if (request->pages.size() < pages_for(request->seq_len)) {
      const std::uint32_t next = request->pages.back() + 1;
      const std::uint32_t page = take_page(below(10) == 0 ? below(options_.num_pages) : next);
      request->pages.push_back(page);
      if (page != next) edit(batch, *request, static_cast<std::uint32_t>(request->pages.size() - 1));
    }
    in_use_[request->row] = request->pages;
  }
}

void RandomStream::next(proto::ForwardBatch& batch) {
  batch.Clear();
  batch.set_version(kForwardBatchVersion);
  batch.set_sequence_number(sequence_number_++);
  extended_.clear();
  retire_finished(batch);

  // Memory for one more token of everybody, or the last to come has to go.
  while (free_pages() < decoding_.size() + prefilled_.size() && !decoding_.empty()) {
    batch.add_decode_leave(decoding_.back()->row);
    in_use_.erase(decoding_.back()->row);
    free_request(*decoding_.back());
    decoding_.pop_back();
  }
  for (const std::shared_ptr<Request>& request : prefilled_) {
    batch.add_decode_join(request->row);
    decoding_.push_back(request);
  }
  prefilled_.clear();

  bool extends = false;
  if (chunked_ != nullptr) {
    if (free_pages() < pages_for(options_.longest_extend) + options_.num_rows) {
      // No room for the next chunk: the request is given up, as if it ended with its prefill.
      ended_with_prefill_.insert(chunked_->row);
      free_request(*chunked_);
      chunked_ = nullptr;
    } else {
      extends = true;
      extend(batch, *chunked_);
      if (--chunked_->chunks_left == 0) {
        prefilled_.push_back(chunked_);
        chunked_ = nullptr;
      }
    }
  }
  if (chunked_ == nullptr && (decoding_.empty() || below(100) < options_.extend_percent)) {
    for (std::uint32_t count = 1 + below(3); count > 0 && chunked_ == nullptr; --count) {
      extends = start_request(batch) || extends;
    }
  }
  const bool decodes = !decoding_.empty() && (!extends || below(3) == 0);
  batch.set_forward_mode(extends ? (decodes ? proto::MIXED : proto::EXTEND)
                                 : (decodes ? proto::DECODE : proto::IDLE));
  if (batch.forward_mode() == proto::DECODE && below(2) == 0) {
    batch.set_capture_bucket(static_cast<std::uint32_t>(decoding_.size()) + below(4));
  }
  if (!decodes) return;
  std::erase_if(ended_with_prefill_, [&](std::uint32_t row) {
    in_use_.erase(row);
    return true;
  });
  decode(batch);
}

std::vector<std::uint32_t> RandomStream::decode_set() const {
  std::vector<std::uint32_t> rows;
  for (const auto& request : decoding_) rows.push_back(request->row);
  return rows;
}

std::uint64_t RandomStream::held_pages() const {
  std::vector<char> named(options_.num_pages, 0);
  for (const auto& [row, pages] : in_use_) {
    for (const std::uint32_t page : pages) named[page] = 1;
  }
  return static_cast<std::uint64_t>(std::count(named.begin(), named.end(), 1));
}

}  // namespace tpsim::rank
