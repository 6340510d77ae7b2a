// Batches and which of them are captured in graphs, the queue with its priorities, the cache of prefixes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvcache/pools/pool.h"
#include "launch/cli/flag_set.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct BatchArgs {
  std::uint32_t max_prefill_tokens = 16384;
  std::optional<std::int64_t> chunked_prefill_size;  // -1: no chunks
  bool enable_mixed_chunk = false;
  std::uint32_t scheduler_recv_interval = 1;
  scheduler::PrefillDelayerConfig prefill_delayer;
  scheduler::SchedulePolicy schedule_policy = scheduler::SchedulePolicy::kFcfs;
  scheduler::SglangRelease sglang_release = scheduler::default_release();
  double schedule_conservativeness = 1.0;
  bool disable_radix_cache = false;
  kvcache::EvictionPolicy radix_eviction_policy = kvcache::EvictionPolicy::kLru;
  bool disable_overlap_schedule = false;
  scheduler::PriorityConfig priority;
  scheduler::RetractionPolicy retraction_policy = scheduler::RetractionPolicy::kLength;
  bool disable_cuda_graph = false;
  bool disable_decode_cuda_graph = false;
  bool disable_prefill_cuda_graph = false;  // also --disable-piecewise-cuda-graph
  std::optional<std::uint32_t> cuda_graph_max_bs;
  std::vector<std::uint32_t> cuda_graph_bs;
  std::optional<std::uint32_t> prefill_cuda_graph_max_tokens;
  std::vector<std::uint32_t> prefill_cuda_graph_tokens;
};

void declare_batches(FlagSet& flags, BatchArgs& args);
// Further down in the help.
void declare_schedule(FlagSet& flags, BatchArgs& args);
void declare_eviction(FlagSet& flags, BatchArgs& args);
void declare_graphs(FlagSet& flags, BatchArgs& args);
void check_batches(const BatchArgs& args);

std::string_view to_string(scheduler::SchedulePolicy policy);
std::string_view to_string(kvcache::EvictionPolicy policy);
std::string_view to_string(scheduler::RetractionPolicy policy);

}  // namespace tpsim::launch
