// The widths of heads that FlashAttention 3 and 4 have kernels for (hopper/static_switch.h).
#pragma once

#include <cstdint>

#include "attention/full/full_attention.h"

namespace tpsim::attention::full {

// The least that holds a head.
constexpr std::uint32_t flash_head_dim(std::uint32_t head_dim) {
  for (const std::uint32_t width : {64U, 96U, 128U, 192U, 256U}) {
    if (head_dim <= width) return width;
  }
  return whole_eights(head_dim);
}

}  // namespace tpsim::attention::full
