// Numbers as "%.9g" and "%u" write them, in a fraction of the time: tables of millions of rows are mostly
// such.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace tpsim::launch {

inline constexpr std::size_t kMostDecimal = 32;  // bytes of a number

// Both write to `at`, where kMostDecimal bytes are, of which they may use more than they fill, and return
// what is behind the number. What fmt's "{:.Ng}" makes of `value`, N = `digits`. REQUIRES: 1 <= digits <= 9.
char* put_decimal(char* at, double value, int digits);
// … and "{}".
char* put_whole(char* at, std::uint64_t value);

// put_decimal() behind what `buffer` has.
void append_decimal(fmt::memory_buffer& buffer, double value, int digits);

}  // namespace tpsim::launch
