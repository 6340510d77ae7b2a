// Order of the waiting queue: SGLang's SchedulePolicy.calc_priority.
//
// Cache-aware policies (lpm, dfs-weight) match every waiting request against the prefix cache first. lpm
// falls back to fcfs above 128 waiting requests, and both deprioritise a request whose prefix another waiting
// request is about to compute (in-batch prefix caching). Without a prefix cache they become fcfs. With
// priority scheduling, fcfs and lof serve the higher priority first.
#pragma once

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
