// The transfers of a hierarchical cache in time: SGLang's HiCacheController and the parts of its HiRadixCache
// that know of requests and streams.
//
// Copies to host memory run one after the other on a stream of their own, loads on another. A node stays
// locked while it is copied or loaded, until the scheduler looks (check_events) and finds the copy done, in
// the order in which they were issued. Loads of all requests that a pass admits are one; the pass waits for
// them layer by layer. The scheduler's thread issues copies; an eviction that writes back waits for them.
//
// Where ranks hold real bytes they are told of copies as late as these may be made: of those to host memory
// when they are done and the pages are unlocked, of loads before the pass that waits for them.
//
// Source: SGLang 0.5.12 managers/cache_controller.py, mem_cache/hiradix_cache.py.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "kvcache/host_tier.h"
#include "kvcache/radix_cache.h"
#include "proto/forward.pb.h"
#include "scheduler/hicache/hicache_config.h"
#include "scheduler/hicache/storage_tier.h"

namespace tpsim::scheduler {

// What host tier and storage add to a pass.
struct HostWork {
  double cpu_seconds = 0;  // the scheduler's thread, before it issues the pass
  // The load that the pass waits for, on its stream; seconds of the run's clock.
  double load_begin = 0, load_end = 0;
  std::uint32_t layers = 0;  // that it waits for one by one; 0: no load

  // When a pass of `seconds` that would begin at `start` ends. Each layer waits for its own part.
  double end_of_pass(double start, double seconds) const;
  // Of several ranks that run a pass together.
  void join(const HostWork& other);

  auto state() { return std::tie(cpu_seconds, load_begin, load_end, layers); }
};

class HiCacheController final : public kvcache::HostTransfers {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  HiCacheController(const HiCacheConfig& config, std::uint32_t page_size)
      : config_(config),
        page_size_(page_size),
        storage_(config.storage.enabled ? std::make_unique<StorageTier>(config.storage, page_size)
                                        : nullptr) {}

  // REQUIRES: before anything else, once; `cache` tells this of its copies, and outlives it.
  void attach(kvcache::RadixCache& cache) { cache_ = &cache; }

  // It is `now`: what is copied from now on begins then.
  void set_time(double now) { now_ = now; }
  // SGLang's check_hicache_events(): nodes whose copies are done by now are unlocked.
  void check_events();
  // When check_events() will have something to do; kNever.
  double next_event() const;

  // SGLang's init_load_back(): what the device has lost of the prefix that ends with `node` is loaded with
  // the next pass, where there is room. Returns its tokens. REQUIRES: the caller locks the rest.
  std::uint32_t load_back(NodeId node);
  // Whether there is storage behind host memory; the four below REQUIRE it.
  bool has_storage() const { return storage_ != nullptr; }
  // SGLang's prefetch_from_storage(): request `id` waits from now on, and of its `tokens` the first `matched`
  // end with `node` on the device or in host memory: what storage has of the rest is read.
  void prefetch(std::uint64_t id, NodeId node, const kvcache::TokenSequence& tokens, std::uint32_t extra_key,
                std::uint32_t matched);
  // SGLang's check_prefetch_progress(): whether `id` waits for storage no more. What was read by then is in
  // host memory; `tokens`: how much, where this is known for the first time.
  bool prefetched(std::uint64_t id, std::uint32_t& tokens);
  // Request `id` is gone.
  void forget_prefetch(std::uint64_t id);

  // SGLang's ready_to_load_host_cache(): what was asked for since begins to load.
  void start_loading();
  // What was to do since the last call.
  HostWork take_work();

  void write_through(NodeId node, std::uint32_t tokens) override;
  void write_back(NodeId node, std::uint32_t tokens) override;
  // Copies between pages that ranks really make before the pass of `batch`, in their order.
  void flush_copies(proto::ForwardBatch& batch);
  // A request is about to hand over what it has computed, `decoded` tokens of it by decode passes: these lie
  // scattered over the pool.
  void on_release(std::uint32_t computed, std::uint32_t decoded);
  // Everything is done, whenever that would be, and the streams' clock begins again.
  void finish_all();
  // Empties the tree and both pools. REQUIRES: no request is live.
  void clear() {
    finish_all();
    cache_->clear();
  }
  const kvcache::HostComponent& pool() const { return cache_->host(); }

  struct Counts {
    std::uint64_t loaded_tokens = 0, written_tokens = 0;
    std::uint64_t loads = 0;
    std::uint64_t stored_tokens = 0, read_tokens = 0;  // to and from storage
    double cpu_seconds = 0;                            // of the scheduler's thread

    auto state() {
      return std::tie(loaded_tokens, written_tokens, loads, stored_tokens, read_tokens, cpu_seconds);
    }
  };
  const Counts& counts() const { return counts_; }
  void clear_counts() { counts_ = {}; }

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(now_, writes_, loads_, queue_, queued_tokens_, write_free_, load_free_, work_, counts_, computed_,
            decoded_, fresh_, prefetching_);
    if (storage_) archive(*storage_);
  }

 private:
  // Of a page.
  struct Copy {
    std::uint32_t from = 0, to = 0;
  };
  struct Write {
    NodeId node = 0;
    double done = 0;
    std::vector<Copy> copies;  // as it was issued: the node may be split meanwhile
    auto state() { return std::tie(node, done); }
  };
  struct Load {
    std::vector<NodeId> nodes;
    double done = 0;
    auto state() { return std::tie(nodes, done); }
  };
  // Host work of a copy of so many tokens, in so many runs of pages.
  double issue_seconds(const HostCopyCost& cost, std::uint64_t tokens, double runs) const;
  double write(std::uint32_t tokens);
  // The copies that make that of `node` in host memory, or the other way; none where none is really made.
  std::vector<Copy> copies(NodeId node, bool to_host) const;
  void copy_now(const std::vector<Copy>& copies) {
    copies_.insert(copies_.end(), copies.begin(), copies.end());
  }
  void back_up(NodeId node);
  void end_read(StorageTier::Read& read, std::uint32_t taken);
  void drain_storage();

  const HiCacheConfig config_;
  const std::uint32_t page_size_;
  std::unique_ptr<StorageTier> storage_;
  kvcache::RadixCache* cache_ = nullptr;
  double now_ = 0;
  std::deque<Write> writes_;   // in order
  std::deque<Load> loads_;     // in order
  std::vector<NodeId> queue_;  // to load with the next pass
  std::uint64_t queued_tokens_ = 0;
  double write_free_ = 0, load_free_ = 0;  // of the streams
  HostWork work_;
  Counts counts_;
  std::vector<Copy> copies_;                  // that ranks are to be told of
  std::uint64_t computed_ = 0, decoded_ = 0;  // tokens of all requests
  std::uint64_t prefetching_ = 0;             // tokens that requests wait for, as they were asked for
  std::uint64_t fresh_ = 0;                   // decoded tokens of the one that hands over
};

}  // namespace tpsim::scheduler
