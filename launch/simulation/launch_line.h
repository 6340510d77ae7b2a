// The command that starts what was simulated.
#pragma once

#include <string>
#include <vector>

#include "launch/flags/server_args.h"

namespace tpsim::launch {

// Of ServerArgs::given, the flags of SGLang's server, under the names of its release (--sglang-version), and
// of attention_backends, where there is one, that pair: to be pasted into a shell. With flags of the router
// it is sglang_router's, which starts the replicas, too; replicas that need more than one host have a command
// each, on host1, host2 …, and the router one behind them. What the server reads from its environment stands
// in front. What SGLang chooses by itself is left to it. Computed runs and --fleet have
// none: a fleet's file holds its servers' own.
std::vector<std::string> launch_commands(const ServerArgs& args);

}  // namespace tpsim::launch
