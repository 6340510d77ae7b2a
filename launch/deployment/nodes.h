// Which node each GPU of a server stands on.
#pragma once

#include <cstdint>

#include "launch/deployment/parallel.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"

namespace tpsim::launch {

// Nodes that a server's GPUs stand on: --nnodes, or as few as have room. Throws UserError where SGLang
// refuses, or would leave ranks without a place (_calculate_rank_ranges of 0.5.23's entrypoints/engine.py),
// where a node lacks the GPUs, and where several nodes need a network and the device's file states none.
std::uint32_t nodes_of(const ServerArgs& args, const proto::HardwareProfile& hardware);

// Ranks on several nodes: into the layout, and how many ranks of a stage share a node into `hardware`. One
// node leaves all as it is.
void place_on_nodes(const ServerArgs& args, proto::HardwareProfile& hardware, Parallel& parallel);

}  // namespace tpsim::launch
