// The pools that requests and the prefix cache share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpsim::kvcache {

// In units of its own: tokens, and states. A model without window layers, or without layers with a
// recurrence, does without theirs.
enum Pool : std::uint8_t { kKvPool, kWindowPool, kStatePool };
inline constexpr std::size_t kPools = 3;

}  // namespace tpsim::kvcache
