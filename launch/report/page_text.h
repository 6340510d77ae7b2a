// The texts that the build embeds: the page's template and Chart.js.
#pragma once

#include <string_view>

namespace tpsim::launch {

std::string_view page_template();
std::string_view chart_js();

}  // namespace tpsim::launch
