// What the user said, and for the rest what SGLang would choose for this GPU, --tp, model and attention
// backend: one file a subject of this folder chooses, and resolve.cc composes what they return.
#pragma once

#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"

namespace tpsim::launch {

// The deployment of `tpsim run`, or one for each entry of --attention-backends. Deterministic: every process
// comes to the same. Throws UserError for what cannot be carried out.
std::vector<Deployment> resolve_deployments(const ServerArgs& args, bool compare);

}  // namespace tpsim::launch
