#include "kvcache/pools/state_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace tpsim::kvcache {

std::uint32_t StateSlots::alloc() {
  if (held_ == num_slots_) return kNone;
  std::uint32_t slot = static_cast<std::uint32_t>(taken_.size());
  if (free_.empty()) {
    taken_.push_back(true);
  } else {
    slot = free_.back();
    free_.pop_back();
    taken_[slot] = true;
  }
  peak_held_ = std::max(peak_held_, ++held_);
  return slot;
}

void StateSlots::free(std::uint32_t slot) {
  if (slot == kNone || !is_allocated(slot))
    throw std::logic_error(fmt::format("state slot {} is freed, but nobody holds it", slot));
  taken_[slot] = false;
  free_.push_back(slot);
  --held_;
}

}  // namespace tpsim::kvcache
