// Log lines go to standard error, from process 0 only.
#pragma once

#include "launch/flags/server_args.h"

namespace tpsim::launch {

// At --log-level. `speaks`: whether this process logs at all. Says which of the flags that were given mean
// nothing to a simulation.
void set_up_logging(const ServerArgs& args, bool speaks);

}  // namespace tpsim::launch
