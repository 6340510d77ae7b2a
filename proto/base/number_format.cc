#include "proto/base/number_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tpsim {
namespace {

// A small float of `exponent_bits` and `mantissa_bits` after a sign bit, bias 2^(exponent_bits - 1) - 1.
// `largest` is the code (without sign) of the largest finite value; beyond it values saturate.
template <int exponent_bits, int mantissa_bits>
std::uint8_t to_small(float value, std::uint8_t largest, std::uint8_t nan) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  const auto sign =
      static_cast<std::uint8_t>(std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0);
  if (std::isnan(value)) return sign | nan;
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | largest;
  // In units of the last place of its binade, rounded to nearest even; a carry moves to the next binade by
  // itself, because codes are ordered as their values.
  const int exponent = std::max(std::ilogb(magnitude), 1 - kBias);
  const float units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const long code = (static_cast<long>(exponent - 1 + kBias) << mantissa_bits) + static_cast<long>(units);
  return sign | static_cast<std::uint8_t>(std::min<long>(code, largest));
}

template <int exponent_bits, int mantissa_bits>
float from_small(std::uint8_t bits) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - kBias - mantissa_bits)
                                        : std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                                                     exponent - kBias - mantissa_bits);
  return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -magnitude : magnitude;
}

template <typename F>
std::array<float, 256> table_of(F from) {
  std::array<float, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) table[i] = from(static_cast<std::uint8_t>(i));
  return table;
}

std::uint8_t to_e2m1(float value) { return to_small<2, 1>(value, 7, 0); }
float from_e2m1(std::uint8_t code) { return from_small<2, 1>(code); }

// Exponent of the power of two that scales a block so that its largest magnitude is at most 6.
int block_exponent(const float* values, std::uint32_t count) {
  float largest = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(values[i]));
  }
  if (largest == 0) return -127;
  int exponent = 0;
  const float fraction = std::frexp(largest / 6, &exponent);  // in [0.5, 1)
  return std::clamp(fraction == 0.5F ? exponent - 1 : exponent, -127, 127);
}

void encode_fp4(const float* values, std::uint32_t count, std::uint8_t* bytes) {
  std::uint8_t* const scales = bytes + (count + 1) / 2;
  std::memset(bytes, 0, (count + 1) / 2);
  for (std::uint32_t begin = 0; begin < count; begin += kFp4Block) {
    const std::uint32_t end = std::min(begin + kFp4Block, count);
    const int exponent = block_exponent(values + begin, end - begin);
    scales[begin / kFp4Block] = static_cast<std::uint8_t>(exponent + 127);
    for (std::uint32_t i = begin; i < end; ++i) {
      const std::uint8_t code = to_e2m1(std::ldexp(values[i], -exponent));
      bytes[i / 2] |= static_cast<std::uint8_t>(i % 2 == 0 ? code : code << 4);
    }
  }
}

void decode_fp4(const std::uint8_t* bytes, std::uint32_t count, float* values) {
  const std::uint8_t* const scales = bytes + (count + 1) / 2;
  for (std::uint32_t begin = 0; begin < count; begin += kFp4Block) {
    const std::uint32_t end = std::min(begin + kFp4Block, count);
    const float scale = std::ldexp(1.0F, scales[begin / kFp4Block] - 127);
    for (std::uint32_t i = begin; i < end; ++i)
      values[i] = scale * from_e2m1(static_cast<std::uint8_t>(bytes[i / 2] >> (i % 2 == 0 ? 0 : 4) & 15));
  }
}

template <typename T, typename F>
void encode_each(const float* values, std::uint32_t count, std::uint8_t* bytes, F to) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const T bits = to(values[i]);
    std::memcpy(bytes + i * sizeof(T), &bits, sizeof(T));
  }
}

template <typename T, typename F>
void decode_each(const std::uint8_t* bytes, std::uint32_t count, float* values, F from) {
  for (std::uint32_t i = 0; i < count; ++i) {
    T bits = 0;
    std::memcpy(&bits, bytes + i * sizeof(T), sizeof(T));
    values[i] = from(bits);
  }
}

struct FormatRow {
  std::string_view name;
  std::uint32_t half_bytes;  // of an element, scales not included
};
// In the order of NumberFormat.
constexpr FormatRow kFormats[] = {{"float32", 8},  {"bfloat16", 4}, {"float16", 4},
                                  {"fp8_e4m3", 2}, {"fp8_e5m2", 2}, {"fp4_e2m1", 1}};

const FormatRow& row_of(NumberFormat format) { return kFormats[static_cast<std::size_t>(format)]; }

}  // namespace

std::string_view to_string(NumberFormat format) { return row_of(format).name; }

std::uint64_t stored_bytes(NumberFormat format, std::uint64_t elements) {
  const std::uint64_t codes = (elements * row_of(format).half_bytes + 1) / 2;
  return format == NumberFormat::kFp4E2M1 ? codes + (elements + kFp4Block - 1) / kFp4Block : codes;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000) return static_cast<std::uint16_t>(sign | 0x7E00);   // not a number
  if (size >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7C00);  // 2^16 and more: infinity
  if (size < 0x38800000) {
    // Below 2^-14: an ulp of 1/2 is the step of the subnormals, so the addition rounds to it.
    const float shifted = std::bit_cast<float>(size) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000));
  }
  // The exponent's bias goes from 127 to 15; the 13 bits that fall away round to even.
  const std::uint32_t rounded = size - (112U << 23) + 0xFFF + (size >> 13 & 1);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

std::uint8_t to_e4m3(float value) { return to_small<4, 3>(value, 0x7E, 0x7F); }

float from_e4m3(std::uint8_t bits) {
  return (bits & 0x7F) == 0x7F ? std::numeric_limits<float>::quiet_NaN() : from_small<4, 3>(bits);
}

std::uint8_t to_e5m2(float value) { return to_small<5, 2>(value, 0x7B, 0x7F); }

float from_e5m2(std::uint8_t bits) {
  if ((bits & 0x7C) != 0x7C) return from_small<5, 2>(bits);
  if ((bits & 3) != 0) return std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::infinity();
}

void encode(NumberFormat format, const float* values, std::uint32_t count, std::uint8_t* bytes) {
  if (count == 0) return;  // an index key has no value beside it, not even an empty one
  switch (format) {
    case NumberFormat::kFp32:
      std::memcpy(bytes, values, std::size_t{count} * 4);
      break;
    case NumberFormat::kBf16:
      encode_each<std::uint16_t>(values, count, bytes, to_bf16);
      break;
    case NumberFormat::kFp16:
      encode_each<std::uint16_t>(values, count, bytes, to_fp16);
      break;
    case NumberFormat::kFp8E4M3:
      encode_each<std::uint8_t>(values, count, bytes, to_e4m3);
      break;
    case NumberFormat::kFp8E5M2:
      encode_each<std::uint8_t>(values, count, bytes, to_e5m2);
      break;
    case NumberFormat::kFp4E2M1:
      encode_fp4(values, count, bytes);
      break;
  }
}

void decode(NumberFormat format, const std::uint8_t* bytes, std::uint32_t count, float* values) {
  static const std::array<float, 256> kE4M3 = table_of(from_e4m3);
  static const std::array<float, 256> kE5M2 = table_of(from_e5m2);
  switch (format) {
    case NumberFormat::kFp32:
      std::memcpy(values, bytes, std::size_t{count} * 4);
      break;
    case NumberFormat::kBf16:
      decode_each<std::uint16_t>(bytes, count, values, from_bf16);
      break;
    case NumberFormat::kFp16:
      decode_each<std::uint16_t>(bytes, count, values, from_fp16);
      break;
    case NumberFormat::kFp8E4M3:
      for (std::uint32_t i = 0; i < count; ++i) values[i] = kE4M3[bytes[i]];
      break;
    case NumberFormat::kFp8E5M2:
      for (std::uint32_t i = 0; i < count; ++i) values[i] = kE5M2[bytes[i]];
      break;
    case NumberFormat::kFp4E2M1:
      decode_fp4(bytes, count, values);
      break;
  }
}

}  // namespace tpsim
