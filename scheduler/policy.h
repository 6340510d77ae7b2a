// Order of the waiting queue: SGLang's SchedulePolicy.calc_priority.
//
// Cache-aware policies (lpm, dfs-weight) match every waiting request against the prefix cache first. lpm
// falls back to fcfs above 128 waiting requests, and both deprioritise a request whose prefix another waiting
// request is about to compute (in-batch prefix caching). Without a prefix cache they become fcfs. With
// priority scheduling, fcfs and lof serve the higher priority first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kvcache/prefix_cache.h"
#include "scheduler/config.h"
#include "scheduler/req.h"

namespace tpsim::scheduler {

// The requests that wait, in the order in which admission looks at them. Who is admitted mostly stands at the
// front: leaving there costs nothing, however many wait behind.
class WaitingQueue {
 public:
  using iterator = std::vector<Req*>::iterator;
  using const_iterator = std::vector<Req*>::const_iterator;

  bool empty() const { return size() == 0; }
  std::size_t size() const { return reqs_.size() - static_cast<std::size_t>(head_); }
  iterator begin() { return reqs_.begin() + head_; }
  iterator end() { return reqs_.end(); }
  const_iterator begin() const { return reqs_.begin() + head_; }
  const_iterator end() const { return reqs_.end(); }
  // For policies, which change the order.
  std::span<Req*> all() { return {begin(), end()}; }

  void push_back(Req* req) {
    if (reqs_.size() == reqs_.capacity() && 2 * static_cast<std::size_t>(head_) > reqs_.size()) {
      reqs_.erase(reqs_.begin(), begin());
      head_ = 0;
    }
    reqs_.push_back(req);
  }
  // Takes out the first `count` requests for which leaves(req) holds, or as many as there are.
  template <typename Leaves>
  void remove(std::size_t count, const Leaves& leaves) {
    iterator behind = begin();  // the last one that leaves
    for (iterator at = begin(); at != end() && count > 0; ++at) {
      if (!leaves(*at)) continue;
      behind = at + 1;
      --count;
    }
    // Those between stay, in their order.
    iterator kept = behind;
    for (iterator at = behind; at != begin();) {
      if (!leaves(*--at)) *--kept = *at;
    }
    head_ = kept - reqs_.begin();
  }

  auto state() { return std::tie(reqs_, head_); }

 private:
  std::vector<Req*> reqs_;  // from head_ on
  std::ptrdiff_t head_ = 0;
};

class WaitingQueuePolicy {
 public:
  // Thresholds of SGLang 0.5: schedule_policy.py.
  static constexpr std::size_t kMaxWaitingForPrefixMatch = 128;
  static constexpr std::uint32_t kInBatchCheckThreshold = 32;         // tokens matched in the pool
  static constexpr std::uint32_t kInBatchDeprioritizeThreshold = 32;  // tokens matched in the queue
  static constexpr std::uint32_t kPrefixRefreshInterval = 32;         // passes

  // `cache` must outlive the policy.
  WaitingQueuePolicy(const SchedulerConfig& config, kvcache::PrefixCache& cache);

  // Reorders `waiting` and refreshes num_matched_prefix_tokens where the policy needs it.
  void calc_priority(std::span<Req*> waiting);

  auto state() { return std::tie(refresh_calls_, random_); }

 private:
  SchedulePolicy active(std::size_t waiting) const;
  void sort(std::span<Req*> waiting, SchedulePolicy policy);
  void sort_by_priority(std::span<Req*> waiting, SchedulePolicy policy);
  void refresh_prefixes(std::span<Req*> waiting, SchedulePolicy policy);
  void compute_prefix_matches(std::span<Req*> waiting);
  void sort_by_longest_prefix(std::span<Req*> waiting);
  void sort_by_dfs_weight(std::span<Req*> waiting);
  void shuffle(std::span<Req*> waiting);

  SchedulePolicy policy_;
  PriorityConfig priority_;
  bool sorts_by_whole_match_;
  bool refreshes_prefixes_;
  std::uint32_t refresh_calls_ = 0;
  kvcache::PrefixCache& cache_;
  std::mt19937_64 random_;
  std::unordered_set<std::uint64_t> queued_prefixes_;
  std::unordered_set<std::uint64_t> deprioritized_;  // request ids
  struct Keyed {
    std::uint64_t key;
    Req* req;
  };
  std::vector<Keyed> keyed_;
};

}  // namespace tpsim::scheduler
