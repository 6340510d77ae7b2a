// Division that rounds up, and what whole pages or groups of ranks hold.
#pragma once

#include <concepts>
#include <type_traits>

namespace tpsim {

// REQUIRES: b > 0, and a + b - 1 has room in the wider of the two types.
template <std::unsigned_integral A, std::unsigned_integral B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// The least multiple of `unit` that is not below `value`. REQUIRES: as ceil_div().
template <std::unsigned_integral A, std::unsigned_integral B>
constexpr std::common_type_t<A, B> ceil_align(A value, B unit) {
  return ceil_div(value, unit) * unit;
}

}  // namespace tpsim
