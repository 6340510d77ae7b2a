// Random deployments that the scheduler can serve.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "scheduler/config.h"

namespace tpsim::scheduler {

inline SchedulerConfig random_config(std::mt19937_64& random) {
  SchedulerConfig config;
  config.page_size = std::vector<std::uint32_t>{1, 16, 32, 64, 128}[random() % 5];
  config.max_total_num_tokens = std::uint64_t{config.page_size} * (20 + random() % 200);
  if (config.page_size == 1) config.max_total_num_tokens *= 10;
  config.max_running_requests = static_cast<std::uint32_t>(1 + random() % 20);
  config.max_prefill_tokens = static_cast<std::uint32_t>(100 + random() % 2000);
  config.chunked_prefill_size =
      random() % 3 == 0 ? 0 : config.page_size * static_cast<std::uint32_t>(1 + random() % 8);
  // Chunks of a few tokens take thousands of passes in a large pool, each of which is checked.
  if (config.page_size == 1 && config.chunked_prefill_size > 0) config.max_total_num_tokens /= 10;
  config.enable_mixed_chunk = random() % 3 == 0;
  config.schedule_policy = static_cast<SchedulePolicy>(random() % 5);
  config.radix_eviction_policy = static_cast<kvcache::EvictionPolicy>(random() % 6);
  config.disable_radix_cache = random() % 5 == 0;
  config.disable_overlap_schedule = random() % 2 == 0;
  config.schedule_conservativeness = random() % 2 == 0 ? 1.0 : 0.05;
  config.context_length = static_cast<std::uint32_t>(config.max_total_num_tokens);
  config.scheduler_step_seconds = config.decode_step_seconds = 0.001;
  config.check_invariants = true;
  return config;
}

// Some algorithm, tree and acceptance; spec v1 runs without overlap.
inline void speculate(std::mt19937_64& random, SchedulerConfig& config, SglangRelease release = v0_5_23()) {
  SpeculationConfig& speculation = config.speculation;
  speculation.algorithm = std::vector{SpeculativeAlgorithm::kEagle, SpeculativeAlgorithm::kStandalone,
                                      SpeculativeAlgorithm::kNgram}[random() % 3];
  speculation.num_steps = static_cast<std::uint32_t>(1 + random() % 5);
  speculation.topk = random() % 2 == 0 ? 1 : static_cast<std::uint32_t>(2 + random() % 4);
  const std::uint32_t most =
      speculation.topk == 1 ? speculation.num_steps : speculation.num_steps * speculation.topk;
  speculation.num_draft_tokens =
      speculation.topk == 1 ? most + 1 : static_cast<std::uint32_t>(2 + random() % most);
  config.sglang_release = release;
  speculation.follow(config.sglang_release, config.disable_overlap_schedule);
  if (!speculation.v2) config.disable_overlap_schedule = true;
  const double rate = static_cast<double>(random() % 11) / 10;
  speculation.accepted = AcceptLengths::from_rates(std::vector{rate, rate * 0.9}, speculation.num_steps,
                                                   speculation.topk, speculation.num_draft_tokens);
  if (!speculation.has_head() || !config.sglang_release.rules.heads_mix_chunks)
    config.enable_mixed_chunk = false;
}

// Window layers with a pool that holds a window and a page at least.
inline void give_windows(std::mt19937_64& random, SchedulerConfig& config) {
  const std::uint64_t page = config.page_size;
  config.sliding_window_size = static_cast<std::uint32_t>(1 + random() % (config.max_total_num_tokens / 4));
  // Room for chunks of some length: one token a pass would take its time.
  const std::uint64_t least = (config.sliding_window_size + 100) / page + 3;
  const std::uint64_t most = config.max_total_num_tokens / page;
  config.swa_max_total_num_tokens = page * (least + random() % (most - std::min(least, most - 1)));
}

// States of gated delta-nets: enough for one request at least, kept with or without snapshots.
inline void give_states(std::mt19937_64& random, SchedulerConfig& config) {
  config.disable_radix_cache = false;
  const bool snapshots = config.page_size > 1 || !config.disable_overlap_schedule || random() % 2 == 0;
  config.states.tracking_slots = !snapshots ? 0 : config.disable_overlap_schedule ? 1 : 2;
  config.states.chunk = std::max(64U, config.page_size);
  config.states.track_interval = config.states.chunk * static_cast<std::uint32_t>(1 + random() % 3);
  const std::uint32_t each = 3 + config.states.tracking_slots;
  config.states.slots = each * static_cast<std::uint32_t>(1 + random() % 8);
  config.max_running_requests = std::min(config.max_running_requests, config.states.slots / each);
  config.enable_mixed_chunk = false;
  if (config.chunked_prefill_size > 0) config.chunked_prefill_size = config.states.chunk;
}

inline bool may_have_host_tier(const SchedulerConfig& config) {
  return config.sliding_window_size == 0 && config.states.slots == 0 && !config.speculation.has_head() &&
         config.pipeline.size == 1;
}

// Host memory for copies, a little or much, at any speed, and now and then storage behind it. REQUIRES:
// may_have_host_tier(config).
inline void give_host_tier(std::mt19937_64& random, SchedulerConfig& config) {
  config.disable_radix_cache = false;
  HiCacheConfig& hicache = config.hicache;
  hicache.tier.tokens =
      config.page_size * (1 + random() % (3 * config.max_total_num_tokens / config.page_size));
  hicache.tier.write_policy = static_cast<kvcache::WritePolicy>(random() % 3);
  hicache.tier.evict_shortfall = random() % 2 == 0;
  hicache.layers = static_cast<std::uint32_t>(1 + random() % 40);
  const auto some = [&random](double most) { return most * static_cast<double>(random() % 5); };
  for (HostCopyCost* cost : {&hicache.load, &hicache.write})
    *cost = {some(1e-3), some(1e-4), some(1e-3), some(1e-4), some(1e-4)};
  if (random() % 3 == 0) {  // copies are really made
    hicache.tier.first_page = kvcache::PageAllocator::with_slack(
        static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size));
    return;
  }
  StorageConfig& storage = hicache.storage;
  storage.enabled = true;
  storage.policy = static_cast<PrefetchPolicy>(random() % 3);
  storage.threshold = std::max(config.page_size, static_cast<std::uint32_t>(random() % 300));
  storage.timeout_seconds = some(0.05);
  storage.timeout_ki_token_seconds = some(0.05);
  storage.most_prefetched = random() % (2 * hicache.tier.tokens);
  storage.read_page_seconds = some(1e-3);
  storage.write_page_seconds = some(1e-3);
  storage.query_page_seconds = some(1e-4);
  storage.latency_seconds = some(1e-3);
}

inline void give_priorities(std::mt19937_64& random, SchedulerConfig& config) {
  config.schedule_policy = random() % 2 == 0 ? SchedulePolicy::kFcfs : SchedulePolicy::kLof;
  config.priority.enable_scheduling = true;
  config.priority.low_values_first = random() % 2 == 0;
  config.priority.disable_preemption = random() % 4 == 0;
  config.priority.preemption_threshold = static_cast<std::int32_t>(random() % 3);
  config.max_running_requests = static_cast<std::uint32_t>(1 + random() % 6);
  if (random() % 3 == 0) config.retraction_policy = RetractionPolicy::kPriority;
}

// Of any kind, with any features.
inline SchedulerConfig random_deployment(std::mt19937_64& random) {
  SchedulerConfig config = random_config(random);
  if (random() % 3 == 0) give_priorities(random, config);
  switch (random() % 5) {
    case 0:
      config.sglang_release = sglang_releases()[random() % 3];
      break;
    case 1:
      config.sglang_release = sglang_releases()[random() % 3];
      config.pipeline.size = static_cast<std::uint32_t>(2 + random() % 4);
      config.pipeline.async_batch_depth = static_cast<std::uint32_t>(random() % 3);
      break;
    case 2:
      speculate(random, config, sglang_releases()[random() % 3]);
      break;
    case 3:
      give_windows(random, config);
      if (random() % 4 == 0) speculate(random, config);
      break;
    default:
      if (random() % 2 == 0) speculate(random, config);
      give_states(random, config);
  }
  if (config.pipeline.size == 1 && random() % 5 == 0) {
    config.data_parallel.size = static_cast<std::uint32_t>(2 + random() % 3);
    config.data_parallel.load_balance = static_cast<LoadBalanceMethod>(random() % 3);
  }
  config.recv_interval = random() % 4 == 0 ? static_cast<std::uint32_t>(2 + random() % 5) : 1;
  const bool preempts = config.priority.enable_scheduling && !config.priority.disable_preemption;
  config.prefill_delayer.enabled = config.pipeline.size == 1 && !preempts && random() % 4 == 0;
  // Whoever looks at the pools after every step makes the scheduler count them then; the others let it put
  // that off.
  config.check_invariants = random() % 2 == 0;
  return config;
}

}  // namespace tpsim::scheduler
