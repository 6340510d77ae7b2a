// The most that is read of images, wherever a request has them from: beyond it a number is a slip of the pen.
#pragma once

#include <cstdint>

namespace tpsim::scheduler {

inline constexpr std::uint32_t kMostPixels = 65536;  // of a side
inline constexpr std::uint32_t kMostImages = 1000;   // of a request

}  // namespace tpsim::scheduler
