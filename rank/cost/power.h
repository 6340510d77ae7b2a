// base^exponent by multiplication alone: processes compare prices bit for bit, and the last bits of a
// library's exponential differ between processors.
#pragma once

#include <cstdint>

namespace tpsim::rank {

inline double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace tpsim::rank
