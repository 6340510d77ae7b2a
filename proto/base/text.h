// Small helpers for the sentences that tpsim says about its command line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim {

// "1, 16, 32, 64 or 128".
std::string join_or(std::span<const std::string_view> words);

// ASCII letters in lower case.
std::string to_lower(std::string text);

// RFC 4648, section 4.
std::string base64(std::string_view bytes);

// The parts of a list with commas (or another character) between them; an empty part stays one.
std::vector<std::string> split_list(std::string_view list, char between = ',');

// Numbers of a flag. Each throws UserError naming `flag` and the range for everything that is not wholly a
// number of that range (signs, blanks, trailing letters, overflow, nan).
std::uint64_t parse_count(std::string_view flag, const std::string& text, std::uint64_t min,
                          std::uint64_t max);
double parse_real(std::string_view flag, const std::string& text, double min, bool min_included, double max,
                  bool max_included);

// The shortest decimal text that reads back as `value`.
std::string format_real(double value);

// The candidate that starts with `word`, or that `word` starts with and is at least half of, or the one with
// the fewest single-letter edits (insert, delete, replace, swap neighbours) from `word`, or "" where none is
// near enough to be what the user meant. Ties: the first candidate.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);
std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates);

// The nearest three, the nearest first; fewer where no more are near enough.
std::vector<std::string> nearest_three(std::string_view word, std::vector<std::string> candidates);

// ", did you mean CANDIDATE?", or "" where none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace tpsim
