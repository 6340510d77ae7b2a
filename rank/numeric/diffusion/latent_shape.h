// The shape of latents, and of the pixels that they become.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tpsim::rank {

// Of one sample: channels, frames, rows, columns, the last contiguous.
using LatentShape = std::array<std::uint32_t, 4>;
inline std::size_t elements(const LatentShape& shape) {
  return std::size_t{shape[0]} * shape[1] * shape[2] * shape[3];
}

}  // namespace tpsim::rank
