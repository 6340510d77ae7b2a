#include "rank/llm/prefill_graphs.h"

#include <algorithm>

namespace tpsim::rank {

std::uint32_t PrefillGraphs::bucket(std::uint32_t rows) const {
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), rows);
  if (rows == 0 || found == tokens.end()) return 0;
  return limit_padding && *found > std::uint64_t{rows} * 2 ? 0 : *found;
}

std::vector<std::uint32_t> capture_prefill_tokens(std::uint32_t max_tokens) {
  struct Range {
    std::uint32_t first, last, step;
  };
  constexpr Range kRanges[] = {{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                               {576, 1024, 64}, {1280, 4096, 256}, {4608, UINT32_MAX, 512}};
  std::vector<std::uint32_t> sizes;
  for (const Range& range : kRanges) {
    for (std::uint64_t size = range.first; size <= std::min(range.last, max_tokens); size += range.step)
      sizes.push_back(static_cast<std::uint32_t>(size));
  }
  return sizes;
}

}  // namespace tpsim::rank
