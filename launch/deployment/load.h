// The load of a run in the rows of its report, under the names of SGLang's serving benchmark.
#pragma once

#include "launch/deployment/rows.h"
#include "launch/flags/server_args.h"

namespace tpsim::launch {

void write_load(const ServerArgs& args, Rows& rows);

}  // namespace tpsim::launch
