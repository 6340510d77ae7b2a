// The words of a tool's command line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tpsim::kernels {

// Takes option `name` with as many words as there are `values` out of `words`, where it is there.
inline void take_option(const std::string& name, const std::vector<std::string*>& values,
                        std::vector<std::string>& words) {
  const auto at = std::find(words.begin(), words.end(), name);
  if (at == words.end() || words.end() - at <= static_cast<std::ptrdiff_t>(values.size())) return;
  for (std::size_t i = 0; i < values.size(); ++i) *values[i] = at[static_cast<std::ptrdiff_t>(i) + 1];
  words.erase(at, at + static_cast<std::ptrdiff_t>(values.size()) + 1);
}

}  // namespace tpsim::kernels
