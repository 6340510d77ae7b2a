#include "proto/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "proto/base/error.h"

namespace tpsim {

namespace {

std::string range_sentence(double min, bool min_included, double max, bool max_included) {
  std::string low = fmt::format("{} {}", min_included ? "at least" : "more than", format_real(min));
  if (!std::isfinite(max)) return low;
  return fmt::format("{} and {} {}", low, max_included ? "at most" : "less than", format_real(max));
}

}  // namespace

std::string join_or(std::span<const std::string_view> words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::vector<std::string> split_list(std::string_view list, char between) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t end = std::min(list.find(between, start), list.size());
    parts.emplace_back(list.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::uint64_t parse_count(std::string_view flag, const std::string& text, std::uint64_t min,
                          std::uint64_t max) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty() || value < min || value > max)
    throw_user_error("{} {}: must be a whole number from {} to {}", flag, text, min, max);
  return value;
}

double parse_real(std::string_view flag, const std::string& text, double min, bool min_included, double max,
                  bool max_included) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool number = error == std::errc() && stop == end && !text.empty() && !std::isnan(value);
  const bool in_range =
      number && (min_included ? value >= min : value > min) && (max_included ? value <= max : value < max);
  if (!in_range)
    throw_user_error("{} {}: must be a number {}", flag, text,
                     range_sentence(min, min_included, max, max_included));
  return value;
}

std::string format_real(double value) {
  char buffer[64];
  const double size = std::fabs(value);
  const bool plain = value == 0 || (size >= 1e-6 && size < 1e15);  // 1000000 rather than 1e+06
  const auto [end, error] =
      plain ? std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed)
            : std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : std::string("?");
}

}  // namespace tpsim
