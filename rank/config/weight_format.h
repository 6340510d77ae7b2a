// How a weight matrix is stored in a GPU's memory, and what its product makes of the input.
#pragma once

#include <cstdint>

namespace tpsim::rank {

// What a matrix product's kernel makes of its 16-bit input first.
enum class ActivationFormat : std::uint8_t { k16Bit, kFp8, kInt8, kNvfp4 };

// One weight [n, k] (outputs, inputs): its elements, and the scales beside them.
struct WeightFormat {
  enum class Kind : std::uint8_t { k16Bit, kFp8, kInt8, kInt4, kMxfp4, kNvfp4 };

  Kind kind = Kind::k16Bit;   // k16Bit: bfloat16 or float16
  std::uint32_t block_n = 0;  // outputs that share a scale; 0 = all
  std::uint32_t block_k = 0;  // inputs that share a scale; 0 = all
  bool zero_points = false;   // int4: a 4-bit zero point beside each scale
  ActivationFormat activation = ActivationFormat::k16Bit;

  bool quantized() const { return kind != Kind::k16Bit; }
  // Bytes of a [n, k] matrix, scales and zero points included.
  std::uint64_t bytes(std::uint64_t n, std::uint64_t k) const;
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

inline constexpr double kElement = 2;  // bytes of an activation (bf16), and of a weight of a vision encoder

}  // namespace tpsim::rank
