// Doubles as "%.9g" writes them, in a fraction of the time: tables of millions of rows are mostly such
// numbers.
#pragma once

#include <fmt/format.h>

#include <cstdint>

namespace tpsim::launch {

// Appends what fmt's "{:.Ng}" makes of `value`, N = `digits`. REQUIRES: 1 <= digits <= 9.
void append_decimal(fmt::memory_buffer& buffer, double value, int digits);
// … and of "{}".
void append_whole(fmt::memory_buffer& buffer, std::uint64_t value);

}  // namespace tpsim::launch
