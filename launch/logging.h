// Log lines go to standard error, from process 0 only.
#pragma once

#include <string>

namespace tpsim::launch {

// `level` as --log-level takes it. `speaks`: whether this process logs at all.
void set_up_logging(const std::string& level, bool speaks);

}  // namespace tpsim::launch
