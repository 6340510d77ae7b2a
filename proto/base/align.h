// Whole pages, whole groups of ranks.
#pragma once

#include <cstdint>

namespace tpsim {

// The least multiple of `unit` that is not below `value`. REQUIRES: unit > 0, and that it fits 32 bits.
inline std::uint32_t ceil_align(std::uint32_t value, std::uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tpsim
