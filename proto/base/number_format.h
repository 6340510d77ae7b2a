// The number formats that a KV cache is stored in, and their conversions from and to fp32.
//
// Sources: IEEE 754 binary16; bfloat16 (round to nearest even); OCP 8-bit floating point specification
// (E4M3 without infinities, E5M2 with them), values beyond the largest saturate; OCP microscaling E2M1 with
// an e8m0 scale (a power of two) for every 16 elements, which is how SGLang's fp4_e2m1 KV cache keeps them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tpsim {

enum class NumberFormat : std::uint8_t { kFp32, kBf16, kFp16, kFp8E4M3, kFp8E5M2, kFp4E2M1 };

constexpr bool is_fp8(NumberFormat format) {
  return format == NumberFormat::kFp8E4M3 || format == NumberFormat::kFp8E5M2;
}

inline constexpr std::uint32_t kFp4Block = 16;  // elements that share a scale

// "float32", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1": SGLang's --kv-cache-dtype.
std::string_view to_string(NumberFormat format);

// Bytes that `elements` consecutive elements take, block scales included (a last short block has one, too).
std::uint64_t stored_bytes(NumberFormat format, std::uint64_t elements);

// One element; round to nearest, ties to even. Not-a-number stays so where the format has it.
std::uint16_t to_bf16(float value);
[[gnu::always_inline]] inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
std::uint16_t to_fp16(float value);
// Inline and without a branch: whole checkpoints go through it.
[[gnu::always_inline]] inline float from_fp16(std::uint16_t bits) {
  // As a float of the wrong bias it is 2^112 too small, subnormals included; infinity and not-a-number keep
  // the largest exponent.
  const auto size = std::bit_cast<std::uint32_t>(std::bit_cast<float>((bits & 0x7FFFU) << 13) * 0x1p112F);
  const std::uint32_t special = (bits & 0x7C00U) == 0x7C00U ? 0x7F800000U : 0U;
  return std::bit_cast<float>(size | special | (bits & 0x8000U) << 16);
}
std::uint8_t to_e4m3(float value);  // beyond 448: 448
float from_e4m3(std::uint8_t bits);
std::uint8_t to_e5m2(float value);  // beyond 57344: 57344
float from_e5m2(std::uint8_t bits);

// `count` elements to and from stored_bytes(format, count) bytes at `bytes`: fp4 codes two in a byte (the
// first in the low half), then the blocks' scales.
void encode(NumberFormat format, const float* values, std::uint32_t count, std::uint8_t* bytes);
void decode(NumberFormat format, const std::uint8_t* bytes, std::uint32_t count, float* values);

}  // namespace tpsim
