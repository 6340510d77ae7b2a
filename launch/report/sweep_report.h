// What a sweep tells beyond its best setting; its table on the terminal and as sweep.csv.
#pragma once

#include <string>

#include "proto/report.pb.h"

namespace tpsim::launch {

// Of more settings than this the terminal shows the front and the best ones, and the report keeps timelines,
// distributions and ranks of those alone.
inline constexpr int kAllSettingsShown = 40;

// Marks the Pareto front of total throughput (by RateUnit) against mean end-to-end latency, among the runs
// that served the same requests (comparable_runs()). The latency is of the whole request because TPOT leaves
// out what a request waits: a setting that lets requests queue can have the best TPOT and be of no use.
void mark_pareto(proto::ComparisonReport& report);

// Where the sweep varies the load (--request-rate, --max-concurrency, --time-scale): the best setting at each
// load, by the rule of choose_best().
void choose_best_by_load(proto::ComparisonReport& report);

// Whether `run` is worth a row where there are many: the best, the best of a load, or on the front.
bool stands_out(const proto::ComparisonReport& report, const proto::RunReport& run);

// Drops the long parts (see kAllSettingsShown) of the runs that do not stand out.
void keep_what_stands_out(proto::ComparisonReport& report);

// One row for each setting with a column for each flag that varies, the best marked with a star and the
// Pareto front with a plus; what cannot be carried out with its reason; the best setting, and the best at
// each load where that varies. Of more than kAllSettingsShown settings: those that stand out. `colour`: ANSI.
std::string sweep_table(const proto::ComparisonReport& report, bool colour, int width = 0);

// One row for each setting, with every figure of its run under the names of report.json.
std::string sweep_csv(const proto::ComparisonReport& report);

}  // namespace tpsim::launch
