// SGLang's --radix-eviction-policy.
#pragma once

#include <cstdint>

namespace tpsim::kvcache {

// slru protects what was hit this often (SGLang's SLRUStrategy).
inline constexpr unsigned kSlruProtectedHits = 2;

enum class EvictionPolicy : std::uint8_t { kLru, kLfu, kSlru, kFifo, kMru, kFilo, kPriority };

}  // namespace tpsim::kvcache
