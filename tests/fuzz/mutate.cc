#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace tpsim::fuzz {
namespace {

constexpr std::array<std::string_view, 36> kPieces = {"0",
                                                      "-1",
                                                      "1e999",
                                                      "-0.0",
                                                      "NaN",
                                                      "Infinity",
                                                      "1e-320",
                                                      "512.5",
                                                      "2147483647",
                                                      "2147483648",
                                                      "4294967296",
                                                      "9223372036854775808",
                                                      "18446744073709551616",
                                                      "281474976710655",
                                                      "281474976710656",
                                                      "null",
                                                      "true",
                                                      "\"\"",
                                                      "\"x\"",
                                                      "[]",
                                                      "{}",
                                                      "[[0,1]]",
                                                      "[",
                                                      "]",
                                                      "}",
                                                      ",",
                                                      ",,",
                                                      "\"",
                                                      "\\",
                                                      "\n",
                                                      "\r\n",
                                                      "\n\n",
                                                      " ",
                                                      "\xef\xbb\xbf",
                                                      "\xc3\x28",
                                                      "9999-99-99 99:99:99"};

}  // namespace

void Mutator::change(std::string& text) {
  const std::size_t at = below(text.size() + 1);
  const std::size_t length = std::min(text.size() - at, 1 + below(below(4) == 0 ? 64 : 4));
  const std::string_view piece = kPieces[below(kPieces.size())];
  switch (below(9)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      return;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(below(256));
      return;
    case 2:
      text.erase(at, length);
      return;
    case 3:
      text.insert(below(text.size() + 1), text.substr(at, length));
      return;
    case 4:
      text.insert(at, piece);
      return;
    case 5:
    case 6: {  // a number, wherever the next one is
      const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
      const auto begin = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_digit);
      const auto end = std::find_if_not(begin, text.end(), is_digit);
      text.replace(begin, end, piece);
      return;
    }
    case 7:
      text.resize(at);
      return;
    default: {
      const std::string& other = seeds_[below(seeds_.size())];
      text = text.substr(0, at) + other.substr(below(other.size() + 1));
    }
  }
}

std::string Mutator::next() {
  std::string text = seeds_[below(seeds_.size())];
  for (std::size_t changes = 1 + below(8); changes > 0; --changes) change(text);
  return text;
}

}  // namespace tpsim::fuzz
