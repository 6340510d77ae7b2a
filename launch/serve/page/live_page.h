// The page that shows a live server in a browser, and the figures that it asks for once a second. It asks for
// nothing but those: styles, scripts and charts are in it.
#pragma once

#include <string>
#include <string_view>

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

// GET / and /live: the same for every server and at any time, text/html.
const std::string& live_page();

// GET /live/data?after=TIME: how things stand, JSON; of LiveStatistics::samples those that are later than
// `after`, seconds of the replica's clock, so that a page which has the others gets a few hundred bytes. Of
// several replicas `replica=N` asks for one alone, without it the answer has a row for each.
std::string live_page_data(const LiveStatistics& statistics, double after = -1);

// The page's template, which the build embeds.
std::string_view live_template();

}  // namespace tpsim::launch
