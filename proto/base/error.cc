#include "proto/base/error.h"

namespace tpsim {
namespace {

// Bytes for which `hidden` holds become \xNN.
template <typename Hidden>
std::string escaped(std::string_view text, Hidden hidden) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += hidden(byte) ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out;
}

}  // namespace

UserError::UserError(const std::string& sentence) : std::runtime_error(sentence) {}
UserError::~UserError() = default;

std::string in_quotes(std::string_view text, std::size_t shown) {
  const std::string begin =
      escaped(text.substr(0, shown), [](unsigned char byte) { return byte < 0x20 || byte >= 0x7f; });
  return fmt::format("\"{}{}\"", begin, text.size() > shown ? "…" : "");
}

std::string printable(std::string_view sentence) {
  return escaped(sentence, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; });
}

}  // namespace tpsim
