// Hierarchical cache: what SGLang's --enable-hierarchical-cache and its relatives come to, and what transfers
// between device, host memory and storage cost.
#pragma once

#include <cstdint>

#include "kvcache/host_tier.h"

namespace tpsim::scheduler {

// Of copies between the device and host memory, in one direction.
struct HostCopyCost {
  double gpu_seconds = 0;        // of each copy
  double gpu_token_seconds = 0;  // of its stream; the host issues at least as long where it copies runs
  double cpu_seconds = 0;        // the scheduler's thread issues one
  double cpu_run_seconds = 0;    // and each run of neighbouring pages in it
  double cpu_page_seconds = 0;   // and each page
};

// SGLang's --hicache-storage-prefetch-policy: when a waiting request stops to wait for its prefix.
enum class PrefetchPolicy : std::uint8_t { kBestEffort, kWaitComplete, kTimeout };

// What lies behind host memory: pages under the hash of all tokens up to their end. Nothing in it is evicted.
struct StorageConfig {
  bool enabled = false;
  PrefetchPolicy policy = PrefetchPolicy::kTimeout;
  std::uint32_t threshold = 256;  // tokens: less is not prefetched
  // Timeout: seconds, and of each 1,024 tokens; at most.
  double timeout_seconds = 1, timeout_ki_token_seconds = 0.25, timeout_most_seconds = 10;
  std::uint64_t most_prefetched = 0;  // tokens on their way; while there are more nothing is prefetched
  // Of one page, seconds; of a request to the storage, of up to kBatchPages.
  double read_page_seconds = 0, write_page_seconds = 0, query_page_seconds = 0;
  double latency_seconds = 0;
  static constexpr std::uint32_t kBatchPages = 128;
};

struct HiCacheConfig {
  kvcache::HostTierOptions tier;
  HostCopyCost load, write;
  std::uint32_t layers = 1;  // loads run ahead of the pass that needs them, layer by layer
  StorageConfig storage;

  bool enabled() const { return tier.tokens > 0; }
};

}  // namespace tpsim::scheduler
