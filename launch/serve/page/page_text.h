// The text that the build embeds: the page's template.
#pragma once

#include <string_view>

namespace tpsim::launch {

std::string_view live_template();

}  // namespace tpsim::launch
