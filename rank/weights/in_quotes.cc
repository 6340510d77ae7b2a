#include "rank/weights/in_quotes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "proto/base/error.h"

namespace tpsim::rank {

std::string in_quotes(std::string_view text) {
  return tpsim::in_quotes(text, 120);  // names of experts' tensors are long
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
