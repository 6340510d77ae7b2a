// SGLang's --radix-eviction-policy.
#pragma once

#include <cstdint>

namespace tpsim::kvcache {

enum class EvictionPolicy : std::uint8_t { kLru, kLfu, kFifo, kMru, kFilo, kPriority };

}  // namespace tpsim::kvcache
