// Which run of a comparison is best, and the tables that are printed.
#pragma once

#include <string>

#include "proto/report.pb.h"

namespace tpsim::launch {

// Fills best and best_reason. The highest total token throughput wins. Under an open load backends that keep
// up all serve what arrives: within 1 % of the highest throughput, the lowest mean end-to-end latency wins.
void choose_best(proto::ComparisonReport& report);

// Aligned columns, the best run marked with a star, and the reason. `colour`: ANSI.
std::string comparison_table(const proto::ComparisonReport& report, bool colour);
// The result block of one run.
std::string run_summary(const proto::RunReport& report);

}  // namespace tpsim::launch
