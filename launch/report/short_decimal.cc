#include "launch/report/short_decimal.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace tpsim::launch {
namespace {

using Wide = unsigned __int128;

constexpr std::array<std::uint64_t, 20> kPowers = [] {
  std::array<std::uint64_t, 20> powers{};
  std::uint64_t power = 1;
  for (std::uint64_t& p : powers) {
    p = power;
    power *= 10;
  }
  return powers;
}();

// Below it zeros behind the point make way for an exponent.
constexpr int kLowestExponent = -4;
// 10^kLowestExponent and up.
constexpr std::array<double, 14> kEdges = {1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2,
                                           1e3,  1e4,  1e5,  1e6,  1e7, 1e8, 1e9};

// 10^x for x from kLowestExponent on, or a neighbour where `value` is close to it: callers look.
int first_digit_exponent(double value) {
  const int octave = static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52) - 1023;
  const int exponent = (octave * 1233) >> 12;  // times log10(2): at most one too low
  const int next = exponent + 1;
  return next >= kLowestExponent && value >= kEdges[static_cast<std::size_t>(next - kLowestExponent)]
             ? next
             : exponent;
}

constexpr int kEight = 8;  // digits that are worked out in one word

// Eight digits of `value`, zeros in front, the first in the lowest byte.
std::uint64_t eight_digits(std::uint32_t value) {
  const std::uint64_t fours = value / 10000 | std::uint64_t{value % 10000} << 32;
  const std::uint64_t hundreds = fours * 10486 >> 20 & 0x0000007f'0000007f;
  const std::uint64_t pairs = hundreds | (fours - 100 * hundreds) << 16;
  const std::uint64_t tens = pairs * 103 >> 10 & 0x000f'000f'000f'000f;
  return tens | (pairs - 10 * tens) << 8;
}

constexpr std::uint64_t kZeros = 0x3030'3030'3030'3030;

// Eight bytes are written, whatever the number of digits.
void put_eight(char* at, std::uint64_t digits) {
  if constexpr (std::endian::native == std::endian::big) digits = __builtin_bswap64(digits);
  std::memcpy(at, &digits, 8);
}

// value x 10^-digits in (0, 1) without its "0.": as few digits as it takes. REQUIRES: 0 < digits <= 8.
char* put_fraction(char* at, std::uint32_t value, int digits) {
  const std::uint64_t all =
      eight_digits(value * static_cast<std::uint32_t>(kPowers[static_cast<std::size_t>(kEight - digits)]));
  put_eight(at, all | kZeros);
  return at + 8 - std::countl_zero(all) / 8;
}

// value x 10^power, rounded to the nearest whole number; false where it lies in the middle of two, or is too
// small for what is done here. REQUIRES: 0 <= power < 20, value > 0 and normal, the result below 2^63.
bool scaled(double value, int power, std::uint64_t& whole) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52) - 1075;  // value = mantissa x 2^exponent
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  const Wide product = Wide{mantissa} * kPowers[static_cast<std::size_t>(power)];  // exact: below 2^117
  if (exponent >= 0) {
    whole = static_cast<std::uint64_t>(product << exponent);
    return true;
  }
  if (exponent <= -120) return false;
  const Wide half = Wide{1} << (-exponent - 1);
  const Wide rest = product & (2 * half - 1);
  whole = static_cast<std::uint64_t>(product >> -exponent) + (rest > half ? 1 : 0);
  return rest != half;
}

}  // namespace

char* put_whole(char* at, std::uint64_t value) {
  constexpr std::uint64_t kPart = kPowers[kEight];
  if (value < 10) {
    *at = static_cast<char>('0' + value);
    return at + 1;
  }
  if (value < kPart) {
    const std::uint64_t digits = eight_digits(static_cast<std::uint32_t>(value));
    const int zeros = std::countr_zero(digits) / 8;
    put_eight(at, (digits | kZeros) >> (8 * zeros));
    return at + 8 - zeros;
  }
  at = put_whole(at, value / kPart);
  put_eight(at, eight_digits(static_cast<std::uint32_t>(value % kPart)) | kZeros);
  return at + 8;
}

char* put_decimal(char* at, double value, int digits) {
  const auto general = [&] { return fmt::format_to(at, "{:.{}g}", value, digits); };
  if (std::bit_cast<std::uint64_t>(value) == 0) {
    *at = '0';
    return at + 1;
  }
  if (!(value >= 1e-4) || !(value < 1e9)) return general();
  const int exponent = first_digit_exponent(value);
  const std::uint64_t limit = kPowers[static_cast<std::size_t>(digits)];
  std::uint64_t whole = 0;
  const int power = digits - 1 - exponent;
  if (exponent >= digits || power < 0 || !scaled(value, power, whole)) return general();
  int point = power;     // digits behind the point
  if (whole >= limit) {  // rounded up to another digit, or the guess was too low
    if (whole > limit) return general();
    whole = limit / 10;
    if (--point < 0) return general();
  }
  if (whole < limit / 10) return general();
  auto narrow = static_cast<std::uint32_t>(whole);  // below 10^9
  if (point > kEight) {                             // nothing is before it
    *at++ = '0';
    *at++ = '.';
    for (; point > kEight + 1; --point) *at++ = '0';
    *at++ = static_cast<char>('0' + narrow / kPowers[kEight]);
    narrow %= static_cast<std::uint32_t>(kPowers[kEight]);
    return narrow == 0 ? at : put_fraction(at, narrow, kEight);
  }
  const auto unit = static_cast<std::uint32_t>(kPowers[static_cast<std::size_t>(point)]);
  const std::uint32_t before = narrow / unit;
  at = put_whole(at, before);
  if (narrow == before * unit) return at;
  *at++ = '.';
  return put_fraction(at, narrow - before * unit, point);
}

void append_decimal(fmt::memory_buffer& buffer, double value, int digits) {
  std::array<char, kMostDecimal> text;
  buffer.append(text.data(), put_decimal(text.data(), value, digits));
}

}  // namespace tpsim::launch
