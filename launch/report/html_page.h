// report.html: one page with everything in it, the charting library (Chart.js, from the apt package
// libjs-chart.js, inlined at build time) included. It opens offline and asks the network for nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tpsim::launch {

// The page of what it shows (page_data.h).
std::string html_page(const nlohmann::ordered_json& data);

// Any page that has the marks @CHART_JS@ and, in a script element, @DATA@.
std::string fill_page(std::string_view page, const nlohmann::ordered_json& data);

// The texts that the build embeds: the page's template and Chart.js.
std::string_view page_template();
std::string_view chart_js();

}  // namespace tpsim::launch
