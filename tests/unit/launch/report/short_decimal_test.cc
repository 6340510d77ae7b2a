#include "launch/report/short_decimal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace tpsim::launch {
namespace {

std::string decimal(double value, int digits) {
  char text[kMostDecimal];
  return {text, put_decimal(text, value, digits)};
}

TEST(ShortDecimal, IsWhatFmtWrites) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-6, 11);
  for (int i = 0; i < 300'000; ++i) {
    const double value = std::pow(10, exponent(random));
    const int digits = static_cast<int>(1 + random() % 9);
    ASSERT_EQ(decimal(value, digits), fmt::format("{:.{}g}", value, digits)) << fmt::format("{}", value);
    // Few digits, and neighbours of them: edges of rounding and of the number of digits.
    const double few = std::stod(fmt::format("{:.{}g}", value, 1 + random() % 3));
    for (const double near : {few, std::nextafter(few, 0.0), std::nextafter(few, 1e300)})
      ASSERT_EQ(decimal(near, digits), fmt::format("{:.{}g}", near, digits)) << fmt::format("{}", near);
    // The middle of two numbers of so many digits, where that is a double.
    const double middle = static_cast<double>(random() % 1'000'000) + 0.5;
    ASSERT_EQ(decimal(middle, digits), fmt::format("{:.{}g}", middle, digits)) << fmt::format("{}", middle);
  }
}

TEST(ShortDecimal, TakesEveryDouble) {
  using Limits = std::numeric_limits<double>;
  for (const double value :
       {0.0, -0.0, 1.0, -1.5, 1e-4, 9.9999999999e-5, 999999999.4, 999999999.6, 1e9, 1e300, Limits::min(),
        Limits::denorm_min(), Limits::max(), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()})
    for (int digits = 1; digits <= 9; ++digits)
      ASSERT_EQ(decimal(value, digits), fmt::format("{:.{}g}", value, digits)) << fmt::format("{}", value);
}

TEST(ShortDecimal, TakesWholeNumbers) {
  char text[kMostDecimal];
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1234567890}, ~std::uint64_t{0}})
    EXPECT_EQ(std::string(text, put_whole(text, value)), fmt::format("{}", value));
}

}  // namespace
}  // namespace tpsim::launch
