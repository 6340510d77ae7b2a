// Flags of the commands that read measured loads.
#pragma once

#include "launch/cli/flag_set.h"
#include "launch/lab/measurements/measurement_formats.h"

namespace tpsim::launch {

// --traces.
void declare_traces(FlagSet& flags, MeasurementOptions& options);

}  // namespace tpsim::launch
