// report.html: one page with everything in it, the charting library (Chart.js, from the apt package
// libjs-chart.js, inlined at build time) included. It opens offline and asks the network for nothing.
#pragma once

#include <string>

#include "proto/report.pb.h"

namespace tpsim::launch {

std::string html_page(const proto::ComparisonReport& report);

}  // namespace tpsim::launch
