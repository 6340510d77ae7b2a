// Numbers for the names of conversations, in order of first appearance.
//
// A name is known by a hash of 128 bits and not kept: a conversation costs 27 to 54 bytes however long its
// name is. That two of a billion names had the same hash has a probability of 1e-21.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tpsim::scheduler {

class LabelNumbers {
 public:
  // From 1. REQUIRES: `label` was not forgotten.
  std::uint32_t of(std::string_view label);
  // `label` will not come again: its memory is free. Its number is not given a second time.
  void forget(std::string_view label);

  std::size_t size() const { return size_; }  // labels that are known

 private:
  using Hash = std::array<std::uint64_t, 2>;
  struct Slot {
    Hash hash{};
    std::uint32_t number = 0;  // 0: free
  };

  static Hash hash_of(std::string_view label);
  // Where `hash` is, or the free slot where it belongs. Slots are filled in a row from the one it asks for.
  std::size_t find(const Hash& hash) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most two thirds taken
  std::size_t size_ = 0;
  std::uint32_t last_ = 0;
};

}  // namespace tpsim::scheduler
