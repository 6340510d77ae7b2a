// What ranks spend a pass on, for those who look at one pass after another (a trace of a run).
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::rank {

// Ranks that do the same in every pass: of one pipeline stage and data-parallel rank, equally slow.
struct RankGroup {
  std::uint32_t stage = 0;
  std::vector<std::uint32_t> ranks;  // ascending
};

// One pass of such a rank; seconds, all layers together.
struct RankSeconds {
  double encoder = 0;
  double attention = 0;
  double gemm = 0;
  double other = 0;
  double launch = 0;
  double wait = 0;  // for the slowest rank of its stage
  double collective = 0;
};

}  // namespace tpsim::rank
