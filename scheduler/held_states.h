// What a request has of the pool of states (scheduler/request_states.h, which hands them out).
#pragma once

#include <array>
#include <cstdint>

#include "kvcache/pools/state_slots.h"

namespace tpsim::scheduler {

struct HeldStates {
  static constexpr std::uint32_t kNone = kvcache::StateSlots::kNone;
  std::uint32_t slot = kNone;         // that its passes read and write
  std::uint32_t copied_from = kNone;  // a slot of the tree, until its first pass copies it
  std::array<std::uint32_t, 2> tracking = {kNone, kNone};
  std::uint8_t next = 0;            // tracking slot of the next snapshot
  std::uint8_t last = 0;            // of the one that tracked_len is about
  std::uint8_t in_flight = 0;       // of a decode pass whose result is not processed yet
  std::uint32_t tracked_len = 0;    // tokens behind which the last snapshot was taken; 0: none
  std::uint32_t previous_len = 0;   // of the one in the other tracking slot, where a verifying pass took both
  bool overshot = false;            // its state is behind more tokens than its client got (speculation)
  std::uint32_t branching_len = 0;  // tokens behind which the next extend should take one; 0: nowhere special
  std::uint32_t missed_len = 0;  // tokens of the matched prefix behind its last state, until its first pass
};

}  // namespace tpsim::scheduler
