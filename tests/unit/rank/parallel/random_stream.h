// Random streams of batches that keep the rules of proto/forward.proto, with the state that a rank must hold
// after each: requests with token-by-token bookkeeping, prefixes shared between requests, chunked prefills,
// requests that end with their prefill, retraction, rows and pages reused within one batch.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "proto/forward.pb.h"

namespace tpsim::rank {

class RandomStream {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint32_t page_size = 1;
    std::uint32_t num_pages = 4096;
    std::uint32_t num_rows = 24;
    std::uint32_t longest_extend = 300;  // tokens of one request in one pass
    std::uint32_t longest_output = 60;
    std::uint32_t extend_percent = 25;  // how often new requests are taken in
  };

  explicit RandomStream(const Options& options);

  // Writes the next batch; afterwards the functions below tell the state after it.
  void next(proto::ForwardBatch& batch);

  std::vector<std::uint32_t> decode_set() const;
  std::uint32_t seq_len(std::uint32_t row) const { return by_row_.at(row)->seq_len; }
  const std::vector<std::uint32_t>& pages(std::uint32_t row) const { return by_row_.at(row)->pages; }
  // Distinct pages of rows in use, as RankState defines it.
  std::uint64_t held_pages() const;

 private:
  struct Request {
    std::uint32_t row = 0;
    std::vector<std::uint32_t> pages;
    std::uint32_t seq_len = 0;
    std::uint32_t prompt_len = 0;
    std::uint32_t chunks_left = 0;
    std::uint32_t output_left = 0;
  };

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  std::uint32_t pages_for(std::uint32_t tokens) const {
    return (tokens + options_.page_size - 1) / options_.page_size;
  }
  std::uint32_t free_pages() const;
  std::uint32_t take_page(std::uint32_t hint);
  void free_request(const Request& request);
  void retire_finished(proto::ForwardBatch& batch);
  void edit(proto::ForwardBatch& batch, const Request& request, std::uint32_t start_page) const;
  void extend(proto::ForwardBatch& batch, Request& request);
  bool start_request(proto::ForwardBatch& batch);
  void decode(proto::ForwardBatch& batch);

  const Options options_;
  std::mt19937_64 random_;
  std::uint64_t sequence_number_ = 0;
  std::vector<std::uint32_t> references_;
  std::vector<std::uint32_t> free_rows_;
  std::map<std::uint32_t, std::shared_ptr<Request>> by_row_;
  std::vector<std::shared_ptr<Request>> decoding_;
  std::vector<std::shared_ptr<Request>> prefilled_;  // by the pass before
  std::shared_ptr<Request> chunked_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> in_use_;
  std::set<std::uint32_t> ended_with_prefill_;
  std::set<std::uint32_t> extended_;  // rows, in this pass
};

}  // namespace tpsim::rank
