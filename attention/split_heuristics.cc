#include "attention/split_heuristics.h"

#include <algorithm>
#include <cmath>

namespace tpsim::attention {

std::uint32_t flash_num_splits(std::uint32_t blocks, std::uint32_t multiprocessors, std::uint32_t kv_steps) {
  constexpr std::uint32_t kMaxSplits = 128;
  // Nearly full without splitting, or too short to split.
  if (blocks >= 0.8 * multiprocessors || kv_steps <= 4) return 1;
  const std::uint32_t most = std::min({kMaxSplits, multiprocessors, kv_steps});
  double best = 0;
  const auto fill = [&](std::uint32_t splits) {
    const double waves = double(blocks) * splits / multiprocessors;
    return waves / std::ceil(waves);
  };
  for (std::uint32_t splits = 1; splits <= most; ++splits) best = std::max(best, fill(splits));
  for (std::uint32_t splits = 1; splits <= most; ++splits) {
    if (fill(splits) >= 0.85 * best) return splits;
  }
  return 1;
}

std::uint32_t flashinfer_tile_q(double average_packed_len, std::uint32_t head_dim) {
  if (average_packed_len > 64 && head_dim < 256) return 128;
  return average_packed_len > 16 ? 64 : 16;
}

}  // namespace tpsim::attention
