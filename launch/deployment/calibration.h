// What the prices of a run were fitted on: one row for each operator class and each host constant that enters
// them, with its table, or `uncalibrated`.
#pragma once

#include "launch/deployment/deployment.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

// `run`: but for its header. `queue_stated`: by --launch-queue.
void write_calibration(const Deployment& run, bool queue_stated, proto::RunReport& report);

}  // namespace tpsim::launch
