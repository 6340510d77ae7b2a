// The settings of a sweep as a table on the terminal and as sweep.csv.
#pragma once

#include <string>

#include "proto/report.pb.h"

namespace tpsim::launch {

// One row for each setting with a column for each flag that varies, the best marked with a star and the
// Pareto front with a plus; what cannot be carried out with its reason; the best setting, and the best at
// each load where that varies. Of more than kAllSettingsShown settings: those that stand out. `colour`: ANSI.
std::string sweep_table(const proto::ComparisonReport& report, bool colour);

// One row for each setting, with every figure of its run under the names of report.json.
std::string sweep_csv(const proto::ComparisonReport& report);

}  // namespace tpsim::launch
