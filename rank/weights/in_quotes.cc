#include "rank/weights/in_quotes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace tpsim::rank {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 120;  // names of experts' tensors are long
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > kShown) out += "…";
  return out + "\"";
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  constexpr std::size_t kShown = 8;
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), kShown); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return out + (shape.size() > kShown ? ", …]" : "]");
}

}  // namespace tpsim::rank
