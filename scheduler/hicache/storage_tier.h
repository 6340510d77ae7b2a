// Storage behind host memory: pages under the hash of all tokens up to their end, read into host memory while
// a request waits, and written from it when a copy there is made. Nothing in it is evicted.
//
// One thread looks requests up, one reads, one writes, each an operation after the other. A read is in
// batches of kBatchPages, whose tokens count when the batch is there; one that is stopped ends with its
// batch.
//
// Source: SGLang 0.5.12 managers/cache_controller.py (prefetch_thread_func, prefetch_io_aux_func,
// backup_thread_func). Hits are those of the moment of the request, not of the look-up a few milliseconds
// later.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <tuple>

#include "kvcache/radix_cache.h"
#include "kvcache/token_runs.h"
#include "scheduler/hicache/hicache_config.h"

namespace tpsim::scheduler {

class StorageTier {
 public:
  using NodeId = std::uint32_t;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // A read, of request `id`. Times are seconds of the run's clock.
  struct Read {
    std::uint64_t id = 0;
    NodeId node = 0;  // whose copy it continues, which is protected meanwhile
    std::uint32_t extra_key = 0;
    kvcache::TokenSequence tokens;  // of the request
    std::uint32_t first = 0;        // token, where it begins
    std::uint32_t asked = 0;        // tokens that host memory is reserved for, until it is looked up …
    std::uint32_t hits = 0;         // … and what storage has of them; 0: too little
    double asked_at = 0, looked_up = 0, begin = 0, end = 0;
    bool trimmed = false;     // what was reserved beyond the hits was given back
    bool stopped = false;     // nobody waits for it
    std::uint32_t taken = 0;  // of one that was stopped: tokens that host memory keeps

    auto state() {
      return std::tie(id, node, extra_key, tokens, first, asked, hits, asked_at, looked_up, begin, end,
                      trimmed, stopped, taken);
    }
  };
  struct Write {
    NodeId node = 0;  // protected
    std::uint32_t extra_key = 0;
    kvcache::TokenSequence tokens;  // from the root to its end
    double done = 0;

    auto state() { return std::tie(node, extra_key, tokens, done); }
  };

  StorageTier(const StorageConfig& config, std::uint32_t page_size);

  // Tokens after the first `first` of `tokens` that are stored, `asked` at most, in whole pages.
  std::uint32_t stored(const kvcache::TokenSequence& tokens, std::uint32_t first, std::uint32_t asked,
                       std::uint32_t extra_key);
  // A look-up, and, where `read.hits` is not 0, a read behind those before it, from `now` on.
  void ask(Read read, double now);
  // Tokens of `read` that are there at `now`.
  std::uint32_t completed(const Read& read, double now) const;
  // Whether a request that waits for `read` goes on at `now`, as the policy has it.
  bool may_stop(const Read& read, double now) const;
  // The earliest time at which may_stop() can be true.
  double stops_at(const Read& read) const;
  // Nobody waits for `read` any more, of which `taken` tokens were used.
  void stop(Read& read, std::uint32_t taken, double now);
  std::deque<Read>& reads() { return reads_; }
  const std::deque<Read>& reads() const { return reads_; }
  // Forgets those that are over by `now` and were trimmed and stopped; `give_back(tokens)` gets what of each
  // was read for nobody.
  template <typename GiveBack>
  void forget(double now, const GiveBack& give_back) {
    std::erase_if(reads_, [&](const Read& read) {
      if (!read.stopped || !read.trimmed || read.end > now) return false;
      give_back(read.hits - read.taken);
      if (read.hits > 0) read_free_ = std::max(read_free_, read.end);
      return true;
    });
  }

  // Writes what `tokens` end with, `own` tokens, behind what is being written.
  void write(NodeId node, std::uint32_t extra_key, kvcache::TokenSequence tokens, std::uint32_t own,
             double now);
  // The first write that is done by `now`, which is stored then; false: none. It is forgotten with that.
  bool next_written(double now, NodeId& node);
  // When something is written; kNever.
  double next_write() const { return writes_.empty() ? kNever : writes_.front().done; }
  // Its threads' clock begins again. REQUIRES: nothing is read or written.
  void restart_clock() { look_up_free_ = read_free_ = write_free_ = 0; }

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(reads_, writes_, look_up_free_, read_free_, write_free_);
    if constexpr (Archive::kReads) {
      index_.load(archive);
    } else {
      index_.save(archive);
    }
  }

 private:
  std::uint32_t batches(std::uint32_t tokens) const;
  double read_seconds(std::uint32_t tokens) const;
  void schedule();

  const StorageConfig config_;
  const std::uint32_t page_size_;
  kvcache::RadixCache index_;  // of what is stored
  std::deque<Read> reads_;     // in order; also those that were stopped and are not over
  std::deque<Write> writes_;   // in order
  // When the threads are free; the one that reads, of those that are forgotten.
  double look_up_free_ = 0, read_free_ = 0, write_free_ = 0;
};

}  // namespace tpsim::scheduler
