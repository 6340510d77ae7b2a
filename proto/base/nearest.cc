#include "proto/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tpsim {

namespace {

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

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  if (word.size() > kLongest) return best;
  std::size_t best_edits = std::numeric_limits<std::size_t>::max();
  for (std::string_view candidate : candidates) {
    // The start of a name stands for the name.
    const bool start = word.size() >= 3 && candidate.substr(0, word.size()) == word;
    const std::size_t n = start && candidate != word ? 1 : edits(word, candidate);
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

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view guess = nearest(word, candidates);
  return guess.empty() ? std::string() : ", did you mean " + std::string(guess) + "?";
}

}  // namespace tpsim
