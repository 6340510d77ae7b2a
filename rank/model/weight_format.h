// How the elements of a weight are stored in a GPU's memory.
#pragma once

#include <cstdint>

namespace tpsim::rank {

struct WeightFormat {
  enum class Kind : std::uint8_t { k16Bit };  // bfloat16 or float16

  Kind kind = Kind::k16Bit;

  // Bytes of a [n, k] matrix, scales included.
  std::uint64_t bytes(std::uint64_t n, std::uint64_t k) const { return 2 * n * k; }

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

}  // namespace tpsim::rank
