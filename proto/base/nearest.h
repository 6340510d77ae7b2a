// "Did you mean": the word that a user may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim {

// The candidate that starts with `word`, or the one with the fewest single-letter edits (insert, delete,
// replace, swap neighbours) from `word`, or "" where none is near enough to be what the user meant. Ties: the
// first candidate.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);
std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates);

// ", did you mean CANDIDATE?", or "" where none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace tpsim
