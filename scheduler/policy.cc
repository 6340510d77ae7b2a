#include "scheduler/policy.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "proto/base/hash.h"

namespace tpsim::scheduler {
namespace {

using NodeId = kvcache::PrefixCache::NodeId;

// Hash of the namespace and the first kInBatchDeprioritizeThreshold tokens; only asked for where there are
// that many. Canonical runs make equal tokens hash equally.
std::uint64_t first_tokens_hash(const Req& req) {
  std::uint32_t left = WaitingQueuePolicy::kInBatchDeprioritizeThreshold;
  std::uint64_t h = hash_with(0, req.cache.extra_key);
  for (const kvcache::TokenRun& run : req.tokens.runs()) {
    const std::uint32_t take = std::min(left, run.length);
    h = hash_with(hash_with(h, run.first), take);
    left -= take;
    if (left == 0) break;
  }
  return h;
}

bool is_cache_aware(SchedulePolicy policy) {
  return policy == SchedulePolicy::kLpm || policy == SchedulePolicy::kDfsWeight;
}

}  // namespace

WaitingQueuePolicy::WaitingQueuePolicy(const SchedulerConfig& config, kvcache::PrefixCache& cache)
    : policy_(config.schedule_policy),
      priority_(config.priority),
      cache_(cache),
      random_(config.random_seed) {
  if (is_cache_aware(policy_) && !cache.keeps_prefixes()) policy_ = SchedulePolicy::kFcfs;
  const ReleaseRules rules = config.sglang_release.rules;
  sorts_by_whole_match_ = !rules.lpm_sorts_by_usable_match;
  refreshes_prefixes_ = rules.refresh_waiting_prefixes && cache.keeps_prefixes() &&
                        config.radix_eviction_policy == kvcache::EvictionPolicy::kLru;
}

SchedulePolicy WaitingQueuePolicy::active(std::size_t waiting) const {
  if (policy_ == SchedulePolicy::kLpm && waiting > kMaxWaitingForPrefixMatch) return SchedulePolicy::kFcfs;
  return policy_;
}

void WaitingQueuePolicy::calc_priority(std::span<Req*> waiting) {
  const SchedulePolicy policy = active(waiting.size());
  sort(waiting, policy);
  refresh_prefixes(waiting, policy);
}

// Keeps the cached prefixes of waiting requests from being evicted as unused: the head of the queue last, so
// that it goes last. Cache-aware policies touch them by matching.
void WaitingQueuePolicy::refresh_prefixes(std::span<Req*> waiting, SchedulePolicy policy) {
  if (!refreshes_prefixes_ || waiting.empty() || is_cache_aware(policy)) return;
  if (refresh_calls_++ % kPrefixRefreshInterval != 0) return;
  for (std::size_t i = std::min(waiting.size(), kMaxWaitingForPrefixMatch); i-- > 0;) {
    Req& req = *waiting[i];
    req.spell_out();
    cache_.match_prefix(req.tokens, req.full_len(), req.cache.extra_key, req.queue_cursor);
  }
}

void WaitingQueuePolicy::sort_by_priority(std::span<Req*> waiting, SchedulePolicy policy) {
  const bool low_first = priority_.low_values_first;
  std::stable_sort(waiting.begin(), waiting.end(), [&](const Req* a, const Req* b) {
    if (a->priority != b->priority) return (a->priority < b->priority) == low_first;
    if (policy == SchedulePolicy::kLof) return a->max_new_tokens > b->max_new_tokens;
    return a->queue_entry < b->queue_entry;
  });
}

void WaitingQueuePolicy::sort(std::span<Req*> waiting, SchedulePolicy policy) {
  const bool knows_priorities = policy_ == SchedulePolicy::kFcfs || policy_ == SchedulePolicy::kLof;
  if (priority_.enable_scheduling && knows_priorities) return sort_by_priority(waiting, policy);
  switch (policy) {
    case SchedulePolicy::kFcfs:
      return;
    case SchedulePolicy::kLpm:
      compute_prefix_matches(waiting);
      sort_by_longest_prefix(waiting);
      return;
    case SchedulePolicy::kDfsWeight:
      compute_prefix_matches(waiting);
      sort_by_dfs_weight(waiting);
      return;
    case SchedulePolicy::kLof:
      std::ranges::stable_sort(waiting, std::ranges::greater(), &Req::max_new_tokens);
      return;
    case SchedulePolicy::kRandom:
      shuffle(waiting);
      return;
  }
}

// In-batch prefix caching asks whether an earlier request of the queue, itself little matched, shares at
// least the threshold of leading tokens. SGLang asks a second radix tree; since the threshold is fixed, a set
// of hashes of the first `threshold` tokens gives the same answer.
void WaitingQueuePolicy::compute_prefix_matches(std::span<Req*> waiting) {
  queued_prefixes_.clear();
  deprioritized_.clear();
  for (Req* req : waiting) {
    req->spell_out();
    const auto match =
        cache_.match_prefix(req->tokens, req->full_len(), req->cache.extra_key, req->queue_cursor);
    req->num_matched_prefix_tokens =
        sorts_by_whole_match_ ? match.matched_tokens : std::min(match.matched_tokens, req->full_len() - 1);
    req->cache.last_node = match.last_node;
    if (match.matched_tokens > kInBatchCheckThreshold) continue;
    if (req->full_len() < kInBatchDeprioritizeThreshold) continue;
    if (!req->in_batch_prefix_known) {
      req->in_batch_prefix_hash = first_tokens_hash(*req);
      req->in_batch_prefix_known = true;
    }
    if (!queued_prefixes_.insert(req->in_batch_prefix_hash).second) deprioritized_.insert(req->id);
  }
}

void WaitingQueuePolicy::sort_by_longest_prefix(std::span<Req*> waiting) {
  keyed_.clear();
  for (Req* req : waiting) {
    // Longest match first; deprioritised requests last.
    const std::uint64_t key = deprioritized_.contains(req->id)
                                  ? ~std::uint64_t{0}
                                  : std::uint64_t{1} << 40 | (0xffffffffULL - req->num_matched_prefix_tokens);
    keyed_.push_back({key, req});
  }
  // The queue stays nearly sorted from pass to pass; std::is_sorted saves most passes the sort.
  if (std::ranges::is_sorted(keyed_, {}, &Keyed::key)) return;
  std::ranges::stable_sort(keyed_, {}, &Keyed::key);
  for (std::size_t i = 0; i < keyed_.size(); ++i) waiting[i] = keyed_[i].req;
}

// Depth first through the prefixes, heaviest subtree (most waiting requests) first; the requests of a node
// follow those of its children. Only nodes on the way to a waiting request are visited.
void WaitingQueuePolicy::sort_by_dfs_weight(std::span<Req*> waiting) {
  constexpr NodeId kRoot = kvcache::PrefixCache::kRoot;
  std::unordered_map<NodeId, std::uint32_t> weight;
  std::unordered_map<NodeId, std::vector<Req*>> requests;
  for (Req* req : waiting) {
    requests[req->cache.last_node].push_back(req);
    for (NodeId node = req->cache.last_node;; node = cache_.parent(node)) {
      ++weight[node];
      if (node == kRoot) break;
    }
  }
  std::size_t ordered = 0;
  struct Frame {
    NodeId node;
    std::vector<NodeId> children;
    std::size_t next = 0;
  };
  const auto open = [&](NodeId node) {
    Frame frame{node, {}, 0};
    for (NodeId child : cache_.children(node)) {
      if (weight.contains(child)) frame.children.push_back(child);
    }
    std::ranges::stable_sort(frame.children, std::ranges::greater(),
                             [&](NodeId child) { return weight[child]; });
    return frame;
  };
  std::vector<Frame> stack;
  stack.push_back(open(kRoot));
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next < top.children.size()) {
      const NodeId child = top.children[top.next++];
      stack.push_back(open(child));
      continue;
    }
    const auto found = requests.find(top.node);
    if (found != requests.end()) {
      for (Req* req : found->second) waiting[ordered++] = req;
    }
    stack.pop_back();
  }
}

// Fisher-Yates over our own generator: std::shuffle may differ between standard libraries.
void WaitingQueuePolicy::shuffle(std::span<Req*> waiting) {
  for (std::size_t i = waiting.size(); i > 1; --i) {
    std::swap(waiting[i - 1], waiting[random_() % i]);
  }
}

}  // namespace tpsim::scheduler
