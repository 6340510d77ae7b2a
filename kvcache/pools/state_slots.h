// Hands out the slots of a pool of states: what layers with a recurrence (gated delta-nets) keep of a
// sequence in place of keys and values. A slot holds the state of one sequence after one token, in all
// layers.
//
// Slots are numbered from 1: SGLang's slot 0 takes what padding writes (mem_cache/allocator/mamba.py of
// 0.5.23, MambaSlotAllocator).
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

namespace tpsim::kvcache {

class StateSlots {
 public:
  static constexpr std::uint32_t kNone = 0;

  explicit StateSlots(std::uint32_t num_slots) : num_slots_(num_slots) {}

  std::uint32_t num_slots() const { return num_slots_; }
  std::uint32_t available() const { return num_slots_ - held_; }
  std::uint32_t held() const { return held_; }
  std::uint32_t peak_held() const { return peak_held_; }

  // kNone where all are taken.
  std::uint32_t alloc();
  // Throws std::logic_error where `slot` is free already or none of the pool's.
  void free(std::uint32_t slot);
  bool is_allocated(std::uint32_t slot) const { return slot < taken_.size() && taken_[slot]; }

  auto state() { return std::tie(held_, peak_held_, free_, taken_); }

 private:
  std::uint32_t num_slots_;
  std::uint32_t held_ = 0;
  std::uint32_t peak_held_ = 0;
  std::vector<std::uint32_t> free_;   // of those that were taken once; others follow taken_
  std::vector<bool> taken_ = {true};  // as long as slots were ever taken; 0 is nobody's
};

}  // namespace tpsim::kvcache
