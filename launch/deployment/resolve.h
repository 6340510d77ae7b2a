// What the user said, and for the rest what SGLang would choose for this GPU, --tp, model and attention
// backend: one file a subject of this folder chooses, and resolve.cc composes what they return.
#pragma once

#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

// The deployment of `tpsim run`, or one for each entry of --attention-backends. Deterministic: every process
// comes to the same. Throws UserError for what cannot be carried out.
std::vector<Deployment> resolve_deployments(const ServerArgs& args, bool compare);

// The deployment of servers that prefill, which has those that decode (launch/deployment/disaggregation.h);
// how many of each, and what lies between them, `prefill` says.
Deployment resolve_split(const ServerArgs& prefill, const ServerArgs& decode);

// What the prices of a run were fitted on (calibration.cc): one row for each operator class and each host
// constant that enters them, with its table, or `uncalibrated`. `run`: but for its header. `queue_stated`: by
// --launch-queue.
void write_calibration(const Deployment& run, bool queue_stated, proto::RunReport& report);

}  // namespace tpsim::launch
