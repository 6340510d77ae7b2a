// Every KV format against a slow exact definition: the nearest of all representable values.
#include "proto/base/number_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace tpsim {
namespace {

struct Code {
  double value;
  std::uint32_t bits;
};

// What a sign-exponent-mantissa code means, by the formula of IEEE 754. `special_exponent`: whether the
// largest exponent holds infinities and NaN.
double meaning(std::uint32_t bits, int exponent_bits, int mantissa_bits, bool special_exponent) {
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const std::uint32_t exponent = bits >> mantissa_bits & ((1U << exponent_bits) - 1);
  const double sign = (bits >> (mantissa_bits + exponent_bits) & 1) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (special_exponent && exponent == (1U << exponent_bits) - 1)
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const double fraction = static_cast<double>(mantissa) / (1U << mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, static_cast<int>(exponent) - bias));
}

// The finite magnitudes of a format in ascending order.
std::vector<Code> magnitudes(int exponent_bits, int mantissa_bits, bool special_exponent,
                             std::uint32_t not_a_number = UINT32_MAX) {
  std::vector<Code> codes;
  for (std::uint32_t bits = 0; bits < 1U << (exponent_bits + mantissa_bits); ++bits) {
    const double value = meaning(bits, exponent_bits, mantissa_bits, special_exponent);
    if (std::isfinite(value) && bits != not_a_number) codes.push_back({value, bits});
  }
  return codes;
}

// The code nearest to |value|; of two, the one with an even code. Beyond the largest: the largest.
std::uint32_t nearest(const std::vector<Code>& codes, double value) {
  const double size = std::fabs(value);
  const auto above = std::lower_bound(codes.begin(), codes.end(), size,
                                      [](const Code& code, double v) { return code.value < v; });
  if (above == codes.end()) return codes.back().bits;
  if (above == codes.begin()) return above->bits;
  const Code& below = *(above - 1);
  const double up = above->value - size;
  const double down = size - below.value;
  if (up != down) return up < down ? above->bits : below.bits;
  return above->bits % 2 == 0 ? above->bits : below.bits;
}

std::vector<float> interesting_values(const std::vector<Code>& codes) {
  std::vector<float> values;
  // All values, the middles between neighbours, and what lies beside those.
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto add = [&](double v) {
      const auto f = static_cast<float>(v);
      for (const float x : {f, std::nextafterf(f, 0.0F), std::nextafterf(f, 1e38F)}) {
        values.push_back(x);
        values.push_back(-x);
      }
    };
    add(codes[i].value);
    if (i + 1 < codes.size()) add((codes[i].value + codes[i + 1].value) / 2);
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto value = std::bit_cast<float>(bits);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

void check_small(int exponent_bits, int mantissa_bits, const std::vector<Code>& codes,
                 const std::function<std::uint32_t(float)>& encode,
                 const std::function<float(std::uint32_t)>& decode) {
  for (const Code& code : codes) {
    ASSERT_EQ(decode(code.bits), code.value) << code.bits;
    ASSERT_EQ(decode(code.bits | 1U << (exponent_bits + mantissa_bits)), -code.value);
  }
  for (const float value : interesting_values(codes)) {
    const std::uint32_t sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0;
    ASSERT_EQ(encode(value), nearest(codes, value) | sign) << value;
  }
}

TEST(NumberFormat, E4M3IsTheNearestValue) {
  check_small(4, 3, magnitudes(4, 3, /*special_exponent=*/false, /*not_a_number=*/0x7F), to_e4m3,
              [](std::uint32_t bits) { return from_e4m3(static_cast<std::uint8_t>(bits)); });
  EXPECT_EQ(from_e4m3(to_e4m3(1e9F)), 448);
  EXPECT_EQ(from_e4m3(to_e4m3(-std::numeric_limits<float>::infinity())), -448);
  EXPECT_TRUE(std::isnan(from_e4m3(to_e4m3(std::nanf("")))));
}

TEST(NumberFormat, E5M2IsTheNearestValue) {
  check_small(5, 2, magnitudes(5, 2, /*special_exponent=*/true), to_e5m2,
              [](std::uint32_t bits) { return from_e5m2(static_cast<std::uint8_t>(bits)); });
  EXPECT_EQ(from_e5m2(to_e5m2(1e9F)), 57344);
  EXPECT_TRUE(std::isnan(from_e5m2(to_e5m2(std::nanf("")))));
}

TEST(NumberFormat, Fp16IsTheNearestValue) {
  const std::vector<Code> codes = magnitudes(5, 10, /*special_exponent=*/true);
  for (const Code& code : codes) {
    ASSERT_EQ(from_fp16(static_cast<std::uint16_t>(code.bits)), code.value);
    ASSERT_EQ(to_fp16(static_cast<float>(code.value)), code.bits);
  }
  for (const float value : interesting_values(codes)) {
    if (std::fabs(value) > 65504) continue;
    ASSERT_EQ(to_fp16(value), nearest(codes, value) | (std::signbit(value) ? 0x8000U : 0U)) << value;
  }
  EXPECT_TRUE(std::isnan(from_fp16(to_fp16(std::nanf("")))));
}

TEST(NumberFormat, Bf16IsTheNearestValue) {
  const std::vector<Code> codes = magnitudes(8, 7, /*special_exponent=*/true);
  for (const float value : interesting_values(codes)) {
    if (std::fabs(value) > codes.back().value) continue;
    ASSERT_EQ(to_bf16(value), nearest(codes, value) | (std::signbit(value) ? 0x8000U : 0U)) << value;
  }
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::nanf("")))));
}

// Blocks of 16 share a power of two, the smallest with which the largest magnitude is at most 6.
TEST(NumberFormat, Fp4IsTheNearestValueUnderItsBlocksScale) {
  const std::vector<Code> codes = magnitudes(2, 1, /*special_exponent=*/false);
  ASSERT_EQ(codes.back().value, 6);
  std::mt19937_64 random(4);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 3000; ++round) {
    const auto count = static_cast<std::uint32_t>(1 + random() % 70);
    const float size = std::ldexp(1.0F, static_cast<int>(random() % 40) - 20);
    std::vector<float> values(count);
    for (float& value : values) value = random() % 8 == 0 ? 0 : normal(random) * size;
    std::vector<std::uint8_t> bytes(stored_bytes(NumberFormat::kFp4E2M1, count));
    ASSERT_EQ(bytes.size(), (count + 1) / 2 + (count + 15) / 16);
    encode(NumberFormat::kFp4E2M1, values.data(), count, bytes.data());
    std::vector<float> back(count);
    decode(NumberFormat::kFp4E2M1, bytes.data(), count, back.data());
    for (std::uint32_t begin = 0; begin < count; begin += kFp4Block) {
      const std::uint32_t end = std::min(begin + kFp4Block, count);
      double largest = 0;
      for (std::uint32_t i = begin; i < end; ++i) largest = std::max<double>(largest, std::fabs(values[i]));
      double scale = std::ldexp(1.0, -127);
      while (largest > 6 * scale) scale *= 2;
      for (std::uint32_t i = begin; i < end; ++i) {
        const double wanted = meaning(nearest(codes, values[i] / scale), 2, 1, false) * scale;
        ASSERT_EQ(std::fabs(back[i]), wanted) << i << " of " << count;
        if (wanted != 0) {
          ASSERT_EQ(std::signbit(back[i]), std::signbit(values[i]));
        }
        ASSERT_LE(std::fabs(back[i] - values[i]), scale) << "half of the widest step, from 4 to 6";
      }
    }
  }
}

// What a round trip may lose, relative to the value, in the normal range of each format.
TEST(NumberFormat, RoundTripsStayWithinHalfAStep) {
  struct Bound {
    NumberFormat format;
    double relative;
  };
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(4096);
  for (float& value : values) {
    do value = normal(random);
    while (std::fabs(value) < 0.02);
  }
  for (const Bound& bound : {Bound{NumberFormat::kFp32, 0}, Bound{NumberFormat::kBf16, 1.0 / 256},
                             Bound{NumberFormat::kFp16, 1.0 / 2048}, Bound{NumberFormat::kFp8E4M3, 1.0 / 16},
                             Bound{NumberFormat::kFp8E5M2, 1.0 / 8}}) {
    const auto count = static_cast<std::uint32_t>(values.size());
    std::vector<std::uint8_t> bytes(stored_bytes(bound.format, count));
    std::vector<float> back(count);
    encode(bound.format, values.data(), count, bytes.data());
    decode(bound.format, bytes.data(), count, back.data());
    double worst = 0;
    for (std::uint32_t i = 0; i < count; ++i)
      worst = std::max(worst, std::fabs((double{back[i]} - values[i]) / values[i]));
    EXPECT_LE(worst, bound.relative) << to_string(bound.format);
    EXPECT_GE(worst, bound.relative * 0.8) << "is it stored at that width? " << to_string(bound.format);
  }
}

}  // namespace
}  // namespace tpsim
