// The two deployments of servers that split prefill from decode, and what they make together
// (launch/deployment/disaggregation.h).
#pragma once

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"

namespace tpsim::launch {

// The flags of a prefill server of `args`, and of a decode server, as SGLang changes them (server_args.py,
// _handle_pd_disaggregation and _handle_piecewise_cuda_graph).
ServerArgs prefill_side_args(const ServerArgs& args);
ServerArgs decode_side_args(const ServerArgs& args);

// Makes `prefill` and `decode`, resolved from those, one deployment: `prefill` then has both. Throws
// UserError for sides that cannot exchange KV, and for what is not simulated so.
void join_sides(const ServerArgs& args, Deployment decode, Deployment& prefill);

}  // namespace tpsim::launch
