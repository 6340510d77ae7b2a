#include "launch/serve/protocol/json_text.h"

#include <cstddef>
#include <cstdint>

namespace tpsim::launch {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the character that `text` begins with; 0 where it begins with none.
std::size_t character_size(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  std::size_t size = 0;
  unsigned char lowest = 0x80,
                highest = 0xBF;  // of the second byte: no overlong forms, surrogates, or above U+10FFFF
  if (first >= 0xC2 && first <= 0xDF) {
    size = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    size = 3;
    if (first == 0xE0) lowest = 0xA0;
    if (first == 0xED) highest = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    size = 4;
    if (first == 0xF0) lowest = 0x90;
    if (first == 0xF4) highest = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < size || at(1) < lowest || at(1) > highest) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if (!continues(at(i))) return 0;
  }
  return size;
}

}  // namespace

void append_escaped(std::string_view text, std::string& out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    if (byte >= 0x80) {
      const std::size_t size = character_size(text);
      out += size == 0 ? kReplacement : text.substr(0, size);
      text.remove_prefix(size == 0 ? 1 : size);
      continue;
    }
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += "\\u00";
        out += kDigits[byte >> 4];
        out += kDigits[byte & 15];
    }
    text.remove_prefix(1);
  }
}

std::string json_string(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  out += '"';
  append_escaped(text, out);
  out += '"';
  return out;
}

}  // namespace tpsim::launch
