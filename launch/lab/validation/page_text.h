// The page's template, which the build embeds.
#pragma once

#include <string_view>

namespace tpsim::launch {

std::string_view validation_template();

}  // namespace tpsim::launch
