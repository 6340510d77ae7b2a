#include <charconv>
#include <cmath>
#include <string_view>

#include "proto/base/error.h"
#include "rank/parallel/local_ranks.h"

namespace tpsim::rank {

namespace {

// The whole of `text` as a number, locale or not.
template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

std::vector<double> parse_rank_slowdowns(std::span<const std::string> values, std::uint32_t tp_size) {
  std::vector<double> factors(tp_size, 1.0);
  std::vector<bool> named(tp_size, false);
  for (const std::string& value : values) {
    const std::size_t colon = value.find(':');
    std::uint32_t rank = 0;
    double factor = 0;
    if (colon == std::string::npos || !parse_whole(std::string_view(value).substr(0, colon), rank) ||
        !parse_whole(std::string_view(value).substr(colon + 1), factor) || !std::isfinite(factor)) {
      throw_user_error("--rank-slowdown {}: expected RANK:FACTOR, for example 3:1.2", value);
    }
    if (rank >= tp_size) {
      throw_user_error("--rank-slowdown {}: --tp {} has ranks 0 to {}", value, tp_size, tp_size - 1);
    }
    if (factor < 1.0) {
      throw_user_error("--rank-slowdown {}: the factor must be at least 1 (1.2 = 20% slower)", value);
    }
    if (named[rank]) throw_user_error("--rank-slowdown {}: rank {} is named twice", value, rank);
    named[rank] = true;
    factors[rank] = factor;
  }
  return factors;
}

}  // namespace tpsim::rank
