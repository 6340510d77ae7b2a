// What a cache with a host tier is told, and whom it tells of the copies that it makes (SGLang's
// HiCacheController, which owns the streams on which they run).
#pragma once

#include <cstdint>

namespace tpsim::kvcache {

// SGLang's --hicache-write-policy: when a node gets its copy. With its first use, with its second, when it is
// evicted from the device.
enum class WritePolicy : std::uint8_t { kWriteThrough, kWriteThroughSelective, kWriteBack };

struct HostTierOptions {
  std::uint64_t tokens = 0;  // of the pool in host memory, a multiple of the page size; 0: without a tier
  WritePolicy write_policy = WritePolicy::kWriteThrough;
  bool evict_shortfall = false;  // of either pool, not the whole demand
  // Copies that are really made (numeric execution): the number of the pool's first page, behind those of the
  // device; 0: none is, and only how many tokens there are is kept.
  std::uint32_t first_page = 0;
};

class HostTransfers {
 public:
  using NodeId = std::uint32_t;

  virtual ~HostTransfers() = default;
  // A copy of `node` is being made, which stays locked until RadixCache::end_write().
  virtual void write_through(NodeId node, std::uint32_t tokens) = 0;
  // The same of one that is evicted: whoever evicts waits for it.
  virtual void write_back(NodeId node, std::uint32_t tokens) = 0;
};

}  // namespace tpsim::kvcache
