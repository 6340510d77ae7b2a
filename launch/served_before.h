// --served-before: the loads that a server without compiled kernels has served since it started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rank/model/fresh_kernels.h"

namespace tpsim::launch {

// A list of load names as `tpsim validate` prints them, divided by commas:
// closed:INPUT:OUTPUT:CONCURRENCY:PROMPTS, burst:INPUT:OUTPUT:PROMPTS; every other NAME:… counts as prompts
// and batches of all sizes; `warmup` for nothing but the request that warms a server up. Throws UserError
// with a sentence about `flag`.
std::vector<rank::ServedLoad> parse_served_before(std::string_view flag, const std::string& text);

}  // namespace tpsim::launch
