// Which of a plan's runs are better: those that hold the service levels, then by compare's rule.
#pragma once

#include <cstddef>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::launch {

// Positions of the first `count` of the report's runs, best first: those whose share of requests within the
// service levels is at least `share` before others, each of the two by the rule of choose_among(). Runs that
// may not be compared are left out. `share`: of no meaning without service levels.
std::vector<int> rank_runs(const proto::ComparisonReport& report, double share, std::size_t count);
// Whether the run keeps `share` of its requests within the service levels; without any, it does.
bool holds(const proto::RunReport& run, double share);

}  // namespace tpsim::launch
