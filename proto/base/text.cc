#include "proto/base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <system_error>

#include "proto/base/error.h"

namespace tpsim {
namespace {

std::string range_sentence(double min, bool min_included, double max, bool max_included) {
  std::string low = fmt::format("{} {}", min_included ? "at least" : "more than", format_real(min));
  if (!std::isfinite(max)) return low;
  return fmt::format("{} and {} {}", low, max_included ? "at most" : "less than", format_real(max));
}

// No name is longer; what is longer is no slip of the keyboard.
constexpr std::size_t kLongest = 200;

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

}  // namespace

std::string to_lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string join_or(std::span<const std::string_view> words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto byte = [&](std::size_t k) {
    return k < bytes.size() ? std::uint32_t{static_cast<unsigned char>(bytes[k])} : 0;
  };
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  char* at = out.data();
  for (std::size_t i = 0; i < bytes.size(); i += 3, at += 4) {
    const std::uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    const std::size_t digits = std::min<std::size_t>(bytes.size() - i, 3) + 1;  // the rest stays filled up
    for (std::size_t k = 0; k < digits; ++k) at[k] = kDigits[three >> (18 - 6 * k) & 63];
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

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  if (word.size() > kLongest) return best;
  std::size_t best_edits = std::numeric_limits<std::size_t>::max();
  for (std::string_view candidate : candidates) {
    // The start of a name stands for the name, and a name for one with something behind it.
    const bool start = word.size() >= 3 && candidate.starts_with(word);
    const bool behind =
        2 * candidate.size() >= std::max<std::size_t>(word.size(), 6) && word.starts_with(candidate);
    const std::size_t n = (start || behind) && candidate != word ? 1 : edits(word, candidate);
    if (n < best_edits) {
      best_edits = n;
      best = candidate;
    }
  }
  const std::size_t allowed = std::max<std::size_t>(2, word.size() / 3);
  return best_edits <= allowed ? best : std::string_view();
}

std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  return nearest(word, views);
}

std::vector<std::string> nearest_three(std::string_view word, std::vector<std::string> candidates) {
  std::vector<std::string> out;
  while (out.size() < 3) {
    const std::string guess(nearest(word, candidates));
    if (guess.empty()) break;
    out.push_back(guess);
    std::erase(candidates, guess);
  }
  return out;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view guess = nearest(word, candidates);
  return guess.empty() ? std::string() : ", did you mean " + std::string(guess) + "?";
}

}  // namespace tpsim
