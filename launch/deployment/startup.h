// What a server's start takes.
#pragma once

#include "launch/deployment/deployment.h"

namespace tpsim::launch {

// From a server's start until it serves, in seconds: its process, weights and graphs. An estimate: the one
// start whose log we have (gpt-oss-20b on an H200, shared/data/serving/second) took 177 s, 134 of
// them for graphs; its weights lay in memory, so that 2 GB/s, a local disk's, is an assumption.
double startup_seconds(const Deployment& deployment);

}  // namespace tpsim::launch
