// The host tier of the prefix cache, and storage behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kvcache/host_tier.h"
#include "launch/cli/flag_set.h"
#include "scheduler/hicache/hicache_config.h"

namespace tpsim::launch {

struct HiCacheArgs {
  bool enable = false;
  std::optional<double> ratio;  // tokens of the host's pool to those of the device's; default 2
  std::uint32_t size = 0;       // GB of each rank; over the ratio
  kvcache::WritePolicy write_policy = kvcache::WritePolicy::kWriteThrough;
  std::string io_backend = "kernel";
  std::string mem_layout;       // empty: the release's
  std::string storage_backend;  // empty: none
  scheduler::PrefetchPolicy prefetch_policy = scheduler::PrefetchPolicy::kTimeout;
  // Of that storage, which SGLang finds out: GB/s, and milliseconds of each request of up to 128 pages.
  std::optional<double> storage_bandwidth, storage_write_bandwidth;
  double storage_latency_ms = 0;
};

void declare_hicache(FlagSet& flags, HiCacheArgs& args);

std::string_view to_string(kvcache::WritePolicy policy);
std::string_view to_string(scheduler::PrefetchPolicy policy);

}  // namespace tpsim::launch
