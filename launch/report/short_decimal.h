// Numbers as fmt writes them, in a third of the time: a run of 0.1 s writes half a million of them into its
// tables.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpsim::launch {

inline constexpr std::size_t kMostDecimal = 32;  // bytes of a number

// Both write to `at`, where kMostDecimal bytes are, and return the end of the number. What fmt's "{:.Ng}"
// makes of `value`, N = `digits`. REQUIRES: 1 <= digits <= 9.
char* put_decimal(char* at, double value, int digits);
// … and "{}".
char* put_whole(char* at, std::uint64_t value);

}  // namespace tpsim::launch
