// report.html: one page with everything in it, the charting library (Chart.js, from the apt package
// libjs-chart.js, inlined at build time) included. It opens offline and asks the network for nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "launch/report/step_profile.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

// `steps`: the steps of the runs, in their order; may be shorter than the runs.
std::string html_page(const proto::ComparisonReport& report, std::vector<StepProfile> steps = {});

// The page of what the page shows (page_data.h).
std::string html_page(const nlohmann::ordered_json& data);

// Any page that has the marks @CHART_JS@ and, in a script element, @DATA@.
std::string fill_page(std::string_view page, const nlohmann::ordered_json& data);

}  // namespace tpsim::launch
