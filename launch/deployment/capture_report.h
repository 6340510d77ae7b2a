// What capturing decode in CUDA graphs costs before the server is ready, in the report of a modeled run.
#pragma once

#include "launch/deployment/deployment.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

// Fills cuda_graphs, cuda_graph_capture_seconds and cuda_graph_bytes.
void write_capture_cost(const Deployment& deployment, proto::RunReport& report);

}  // namespace tpsim::launch
