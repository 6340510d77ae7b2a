#include "rank/weights/stored_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/rank/weights/safetensors_writer.h"

namespace tpsim::rank {
namespace {

// The value of a binary format with `fraction_bits`, by its definition.
double slow_value(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double fraction = bits & ((1U << fraction_bits) - 1);
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double sign = (bits >> (exponent_bits + fraction_bits)) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + std::ldexp(1.0, fraction_bits), exponent - bias - fraction_bits);
}

void expect_all_exact(StoredType type, int exponent_bits, int fraction_bits) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  // From an odd address, as a header of odd length makes it.
  const std::string bytes = "x" + testing::bytes_of(all);
  std::vector<float> out(all.size());
  to_fp32(type, bytes.data() + 1, out.size(), out.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double expected = slow_value(all[i], exponent_bits, fraction_bits);
    ASSERT_EQ(std::signbit(out[i]), i >> 15 != 0) << i;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    } else {
      ASSERT_EQ(out[i], expected) << i;
    }
  }
}

TEST(StoredType, EveryFp16IsExact) { expect_all_exact(StoredType::kF16, 5, 10); }
TEST(StoredType, EveryBf16IsExact) { expect_all_exact(StoredType::kBF16, 8, 7); }

TEST(StoredType, AnyRangeIsConvertedAndNothingElseWritten) {
  std::mt19937 random(1);
  for (const StoredType type : {StoredType::kBF16, StoredType::kF16, StoredType::kF32}) {
    const std::size_t width = bits_of(type) / 8;
    std::string bytes(200 * width, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    std::vector<float> whole(200);
    to_fp32(type, bytes.data(), whole.size(), whole.data());
    for (int round = 0; round < 200; ++round) {
      const std::size_t first = random() % 200;
      const std::size_t count = random() % (200 - first + 1);
      std::vector<float> part(count + 1, 77);
      to_fp32(type, bytes.data() + first * width, count, part.data());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(part[i]), std::bit_cast<std::uint32_t>(whole[first + i]));
      }
      ASSERT_EQ(part[count], 77);
    }
  }
}

TEST(StoredType, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(StoredType::kU64); ++i) {
    const auto type = static_cast<StoredType>(i);
    EXPECT_EQ(parse_stored_type(to_string(type)), type);
  }
  EXPECT_EQ(parse_stored_type("bf16"), std::nullopt);
  EXPECT_EQ(bits_of(StoredType::kF4), 4U);
  EXPECT_EQ(bits_of(StoredType::kBF16), 16U);
  EXPECT_EQ(bits_of(StoredType::kF64), 64U);
}

}  // namespace
}  // namespace tpsim::rank
