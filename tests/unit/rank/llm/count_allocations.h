// Counts the allocations of this program, to show that a steady step makes none.
#pragma once

#include <cstdint>

namespace tpsim::rank {

std::uint64_t allocations();

}  // namespace tpsim::rank
