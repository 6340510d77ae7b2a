#include "launch/report/short_decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <string_view>

namespace tpsim::launch {
namespace {

using Wide = unsigned __int128;

constexpr std::array<std::uint64_t, 14> kPowers = [] {
  std::array<std::uint64_t, 14> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = 10 * powers[i - 1];
  return powers;
}();

// Below it zeros after the point make way for an exponent.
constexpr int kLowestExponent = -4;
// 10^kLowestExponent and up.
constexpr std::array<double, 14> kEdges = {1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2,
                                           1e3,  1e4,  1e5,  1e6,  1e7, 1e8, 1e9};

// value x 10^power, rounded to the nearest whole number; 0 where it lies in the middle of two.
// REQUIRES: 0 <= power <= 12, value in [1e-4, 1e9).
std::uint64_t scaled(double value, int power) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int shift = 1075 - static_cast<int>(bits >> 52);  // value = mantissa / 2^shift, 22 < shift < 67
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  const Wide product = Wide{mantissa} * kPowers[static_cast<std::size_t>(power)];  // exact: below 2^93
  const Wide half = Wide{1} << (shift - 1);
  const Wide rest = product & (2 * half - 1);
  return rest == half ? 0 : static_cast<std::uint64_t>(product >> shift) + (rest > half ? 1 : 0);
}

char* put(char* at, std::string_view text) { return std::copy(text.begin(), text.end(), at); }

}  // namespace

char* put_whole(char* at, std::uint64_t value) { return std::to_chars(at, at + kMostDecimal, value).ptr; }

char* put_decimal(char* at, double value, int digits) {
  const auto general = [&] { return fmt::format_to(at, "{:.{}g}", value, digits); };
  if (std::bit_cast<std::uint64_t>(value) == 0) return put(at, "0");
  if (!(value >= kEdges.front()) || !(value < kEdges.back())) return general();
  int exponent = kLowestExponent;  // of the first digit
  while (value >= kEdges[static_cast<std::size_t>(exponent + 1 - kLowestExponent)]) ++exponent;
  const int power = digits - 1 - exponent;
  const std::uint64_t whole = power < 0 ? 0 : scaled(value, power);
  // Rounded up to one digit more, too, is left to fmt.
  if (whole == 0 || whole >= kPowers[static_cast<std::size_t>(digits)]) return general();
  const fmt::format_int text(whole);
  std::string_view all(text.data(), text.size());
  all = all.substr(0, all.find_last_not_of('0') + 1);
  if (exponent < 0)
    return put(put(at, std::string_view("0.000").substr(0, static_cast<std::size_t>(1 - exponent))), all);
  const auto before = static_cast<std::size_t>(exponent) + 1;  // digits before the point
  if (all.size() <= before) return put(at, {text.data(), before});
  return put(put(put(at, all.substr(0, before)), "."), all.substr(before));
}

}  // namespace tpsim::launch
