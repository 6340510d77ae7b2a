#include "launch/report/short_decimal.h"

#include <array>
#include <bit>
#include <cstdint>
#include <iterator>

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

void append_decimal(fmt::memory_buffer& buffer, double value, int digits) {
  const auto general = [&] { fmt::format_to(std::back_inserter(buffer), "{:.{}g}", value, digits); };
  if (std::bit_cast<std::uint64_t>(value) == 0) return buffer.push_back('0');
  if (!(value >= 1e-4) || !(value < 1e9)) return general();
  // The exponent of the first digit: a guess from below, and one more where it is too low.
  int exponent = kLowestExponent;
  for (double edge = 1e-3; exponent < 8 && value >= edge; edge *= 10) ++exponent;
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
  while (point > 0 && whole % 10 == 0) {
    whole /= 10;
    --point;
  }
  std::array<char, 24> text;
  char* at = text.data() + text.size();
  char* const end = at;
  for (int i = 0; i < point; ++i) {
    *--at = static_cast<char>('0' + whole % 10);
    whole /= 10;
  }
  if (point > 0) *--at = '.';
  do {
    *--at = static_cast<char>('0' + whole % 10);
    whole /= 10;
  } while (whole > 0);
  buffer.append(at, end);
}

}  // namespace tpsim::launch
