// report.html: one page with everything in it, the charting library (Chart.js, from the apt package
// libjs-chart.js, inlined at build time) included. It opens offline and asks the network for nothing.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "launch/report/step_profile.h"

namespace tpsim::launch {

// What report.html holds of a report: the same names as report.json, without what the page does not show, so
// that the page stays below a few megabytes for hundreds of settings and millions of steps.
// `report` is a ComparisonReport as to_json() writes it; `steps` are those of its runs, in their order, and
// may be shorter. In the result
//   - a number has six significant digits;
//   - a timeline is an object of columns;
//   - ranks that spend their time alike are one entry, whose "ranks" names them;
//   - `options` has every server argument, {"name", "values"}: one value where all runs have the same, else
//     one for each run; `calibration` has each row once;
//   - `best_index` is the best run, -1 for none; `shown` are the runs that charts show: all, or of more than
//     kShown the best, the best at each load and some along the Pareto front. Others lose their series
//     (timeline, histograms);
//   - run i has `steps_profile`: {"per_block", "count", "data"} of steps[i] (StepProfile::encoded()),
//     coarsened until all together have kStepBlocks blocks at most.
nlohmann::ordered_json page_data(nlohmann::ordered_json report, std::vector<StepProfile> steps);

constexpr std::size_t kShown = 8;
constexpr std::size_t kStepBlocks = 1 << 17;

// The page of what it shows (page_data()).
std::string html_page(const nlohmann::ordered_json& data);

// Any page that has the marks @CHART_JS@ and, in a script element, @DATA@.
std::string fill_page(std::string_view page, const nlohmann::ordered_json& data);

// The texts that the build embeds: the page's template and Chart.js.
std::string_view page_template();
std::string_view chart_js();

}  // namespace tpsim::launch
