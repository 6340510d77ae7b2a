// Flags of the commands that read measured loads.
#pragma once

#include "launch/flag_set.h"
#include "launch/measurements/measurement_formats.h"

namespace tpsim::launch {

// --traces.
void declare_traces(FlagSet& flags, MeasurementOptions& options);

}  // namespace tpsim::launch
