// The pools that requests and the prefix cache share, and in which order it gives theirs back.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpsim::kvcache {

// In units of its own: tokens, and states. A model without window layers, or without layers with a
// recurrence, and a server without a host tier do without theirs.
enum Pool : std::uint8_t { kKvPool, kWindowPool, kStatePool, kHostPool };
inline constexpr std::size_t kPools = 4;

// EvictionPolicy::kSlru protects what was hit this often (SGLang's SLRUStrategy).
inline constexpr unsigned kSlruProtectedHits = 2;

// SGLang's --radix-eviction-policy.
enum class EvictionPolicy : std::uint8_t { kLru, kLfu, kSlru, kFifo, kMru, kFilo, kPriority };

}  // namespace tpsim::kvcache
