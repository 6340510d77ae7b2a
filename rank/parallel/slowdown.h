// --rank-slowdown: ranks that compute slower than their peers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tpsim::rank {

// Reads the values of --rank-slowdown, each "RANK:FACTOR" ("3:1.2": rank 3 takes 1.2 times as long to
// compute), into one factor per rank; a rank that none names has 1. Throws UserError for anything else: a
// factor is a finite number >= 1, a rank is below `tp_size` and named once.
std::vector<double> parse_rank_slowdowns(std::span<const std::string> values, std::uint32_t tp_size);

}  // namespace tpsim::rank
