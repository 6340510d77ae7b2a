// A measured load, served by the simulation.
#pragma once

#include <atomic>

#include "launch/lab/measurements/measured_load.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

// Serves `load` with the deployment of its flags, in this process, and holds it against what was measured.
// What tpsim refuses is in the row's refusal. May be called by several threads at once. Where `stop` becomes
// true it returns early.
proto::ValidatedRow predict_load(const MeasuredLoad& load, const std::atomic<bool>& stop);

}  // namespace tpsim::launch
