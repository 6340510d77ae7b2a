#include "proto/base/error.h"

namespace tpsim {

UserError::UserError(const std::string& sentence) : std::runtime_error(sentence) {}
UserError::~UserError() = default;

std::string in_quotes(std::string_view text, std::size_t shown) {
  std::string out = "\"";
  for (const char c : text.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > shown) out += "…";
  return out + "\"";
}

std::string printable(std::string_view sentence) {
  std::string out;
  for (const char c : sentence) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace tpsim
