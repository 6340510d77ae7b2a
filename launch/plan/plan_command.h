// `tpsim plan`: what to launch on so many GPUs, for a load and its service levels.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// Declares the flags of `command`; when that was parsed, `action` becomes what carries it out and returns the
// exit status. All must outlive the action.
void add_plan_command(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
