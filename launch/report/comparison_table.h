// The tables of a comparison and of a run, and what they say beside latencies: service levels, overload,
// error bands, ties and what was not measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::launch {

// Columns: goodput and its share with --goodput, the rate found with --max-goodput-rate; none without.
std::vector<std::string> goodput_heads(const proto::ComparisonReport& report);
std::vector<std::string> goodput_cells(const proto::ComparisonReport& report, const proto::RunReport& run);

// Of --max-goodput-rate: of which load the figures beside it are; else empty.
std::string rate_line(const proto::ComparisonReport& report);

// Sentences below the table: how each search ended, and which runs are overloaded. Empty where there are
// none.
std::string goodput_lines(const proto::ComparisonReport& report);

// Of a figure as the report calls it ("mean_ttft_ms"); null where the run has no band of it.
const proto::ErrorBand* find_band(const proto::RunReport& run, std::string_view figure);

// Of a run with error bands: "TTFT 330 to 384 ms, TPOT 19.0 to 21.1 ms, latency 6.12 to 6.90 s"; and what
// they rest on.
std::string error_band_text(const proto::RunReport& run);
std::string error_band_basis(const proto::RunReport& run);

// A block below the table of a comparison; empty where no run has bands.
std::string error_band_lines(const proto::ComparisonReport& report);
// Above the table: runs whose model family was met by no server on their GPU; empty where there are none.
std::string no_server_lines(const proto::ComparisonReport& report);
// What went beyond the measured shapes, one line for each run; empty where nothing did.
std::string extrapolation_lines(const proto::ComparisonReport& report);
// Whether the best is told from the others; empty where nothing is known of that.
std::string certainty_line(const proto::ComparisonReport& report);

// Aligned columns, the best run marked with a star, and the reason. `colour`: ANSI; `width`: columns of
// the terminal, 0 for any.
std::string comparison_table(const proto::ComparisonReport& report, bool colour, int width = 0);
// The result block of one run.
std::string run_summary(const proto::RunReport& report);

}  // namespace tpsim::launch
