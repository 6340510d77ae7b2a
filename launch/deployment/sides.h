// The two deployments of servers that split prefill from decode, and what they make together
// (launch/deployment/disaggregation.h).
#pragma once

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"

namespace tpsim::launch {

// The flags of a prefill server of `args`, and of a decode server, as SGLang changes them (0.5.12's
// server_args.py, _handle_pd_disaggregation and _handle_piecewise_cuda_graph; 0.5.23's
// arg_groups/cuda_graph_hook.py).
ServerArgs prefill_side_args(const ServerArgs& args);
ServerArgs decode_side_args(const ServerArgs& args);

// Makes `prefill` and `decode`, resolved from those, one deployment: `prefill` then has both. Throws
// UserError for sides that cannot exchange KV, and for what is not simulated so.
void join_sides(const ServerArgs& args, Deployment decode, Deployment& prefill);

}  // namespace tpsim::launch
