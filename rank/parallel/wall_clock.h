// The clock by which processes wait for each other.
#pragma once

#include <chrono>

namespace tpsim::rank {

// Seconds; goes on steadily, from no day in particular.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tpsim::rank
