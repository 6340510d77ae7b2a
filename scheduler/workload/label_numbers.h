// Numbers for the names of conversations, in order of first appearance.
//
// A name is known by a hash of 128 bits and not kept: a conversation costs some 60 bytes however long its
// name is. That two of a billion names had the same hash has a probability of 1e-21.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "proto/base/hash.h"

namespace tpsim::scheduler {

class LabelNumbers {
 public:
  // From 1. REQUIRES: `label` was not forgotten.
  std::uint32_t of(std::string_view label) {
    const auto [known, is_new] = numbers_.try_emplace(hash_of(label), last_ + 1);
    if (is_new) ++last_;
    return known->second;
  }
  // `label` will not come again: its memory is free. Its number is not given a second time.
  void forget(std::string_view label) { numbers_.erase(hash_of(label)); }

  std::size_t size() const { return numbers_.size(); }  // labels that are known

 private:
  using Hash = std::array<std::uint64_t, 2>;
  struct FirstHalf {
    std::size_t operator()(const Hash& hash) const { return hash[0]; }
  };

  static Hash hash_of(std::string_view label) {
    ByteHash plain, shifted;
    plain.add(label);
    shifted.add("-");
    shifted.add(label);
    return {plain.value(), shifted.value()};
  }

  std::unordered_map<Hash, std::uint32_t, FirstHalf> numbers_;
  std::uint32_t last_ = 0;
};

}  // namespace tpsim::scheduler
