// What the tables on the terminal say about service levels and overload.
#pragma once

#include <string>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::launch {

// Columns: goodput and its share with --goodput, the rate found with --max-goodput-rate; none without.
std::vector<std::string> goodput_heads(const proto::ComparisonReport& report);
std::vector<std::string> goodput_cells(const proto::ComparisonReport& report, const proto::RunReport& run);

// Sentences below the table: how each search ended, and which runs are overloaded. Empty where there are
// none.
std::string goodput_lines(const proto::ComparisonReport& report);

}  // namespace tpsim::launch
