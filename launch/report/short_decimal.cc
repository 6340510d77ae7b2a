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

constexpr std::array<std::array<char, 2>, 100> kPairs = [] {
  std::array<std::array<char, 2>, 100> pairs{};
  for (std::size_t i = 0; i < pairs.size(); ++i)
    pairs[i] = {static_cast<char>('0' + i / 10), static_cast<char>('0' + i % 10)};
  return pairs;
}();

// `digits` digits of `value`, zeros in front. Returns what is behind them.
char* put_digits(char* at, std::uint32_t value, int digits) {
  char* const end = at + digits;
  for (at = end; digits >= 2; digits -= 2) {
    const std::uint32_t rest = value / 100;
    at -= 2;
    std::memcpy(at, kPairs[value - rest * 100].data(), 2);
    value = rest;
  }
  if (digits > 0) *--at = static_cast<char>('0' + value);
  return end;
}

// How many digits a number has that is written in so many bits, or one fewer.
int digits_of(std::uint32_t value) {
  const int most = (static_cast<int>(std::bit_width(value | 1)) * 1233 >> 12) + 1;
  return most - (value < kPowers[static_cast<std::size_t>(most - 1)] && most > 1 ? 1 : 0);
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
  constexpr std::uint64_t kPart = 1'000'000'000;
  if (value < 10) {
    *at = static_cast<char>('0' + value);
    return at + 1;
  }
  if (value <= UINT32_MAX) {
    const auto narrow = static_cast<std::uint32_t>(value);
    return put_digits(at, narrow, digits_of(narrow));
  }
  at = put_whole(at, value / kPart);
  return put_digits(at, static_cast<std::uint32_t>(value % kPart), 9);
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
  while (point > 0 && narrow % 10 == 0) {
    narrow /= 10;
    --point;
  }
  if (point == 0) return put_whole(at, narrow);
  // As many as 12 are behind the point, zeros in front of them: then nothing is before it.
  const auto unit = kPowers[static_cast<std::size_t>(point)];
  const auto before =
      unit > narrow ? 0 : static_cast<std::uint32_t>(narrow / static_cast<std::uint32_t>(unit));
  at = put_whole(at, before);
  *at++ = '.';
  return put_digits(at, narrow - before * static_cast<std::uint32_t>(unit), point);
}

void append_decimal(fmt::memory_buffer& buffer, double value, int digits) {
  std::array<char, kMostDecimal> text;
  buffer.append(text.data(), put_decimal(text.data(), value, digits));
}

}  // namespace tpsim::launch
