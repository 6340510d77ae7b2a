#include "launch/report/short_decimal.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
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

// Writes the digits of `value` before `end`; returns where they begin.
char* put_backwards(std::uint64_t value, char* end) {
  for (; value >= 100; value /= 100) {
    end -= 2;
    std::memcpy(end, kPairs[value % 100].data(), 2);
  }
  if (value < 10) {
    *--end = static_cast<char>('0' + value);
    return end;
  }
  end -= 2;
  std::memcpy(end, kPairs[value].data(), 2);
  return end;
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

void append_decimal(fmt::memory_buffer& buffer, double value, int digits) {
  const auto general = [&] { fmt::format_to(std::back_inserter(buffer), "{:.{}g}", value, digits); };
  if (std::bit_cast<std::uint64_t>(value) == 0) return buffer.push_back('0');
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
  while (point > 0 && whole % 10 == 0) {
    whole /= 10;
    --point;
  }
  std::array<char, 24> text;
  char* at = text.data() + text.size();
  char* const end = at;
  auto digits_left = static_cast<std::uint32_t>(whole);  // below 10^9
  for (; point >= 2; point -= 2) {
    at -= 2;
    std::memcpy(at, kPairs[digits_left % 100].data(), 2);
    digits_left /= 100;
  }
  if (point > 0) {
    *--at = static_cast<char>('0' + digits_left % 10);
    digits_left /= 10;
  }
  if (at != end) *--at = '.';
  at = put_backwards(digits_left, at);
  buffer.append(at, end);
}

void append_whole(fmt::memory_buffer& buffer, std::uint64_t value) {
  std::array<char, 24> text;
  char* const end = text.data() + text.size();
  buffer.append(put_backwards(value, end), end);
}

}  // namespace tpsim::launch
