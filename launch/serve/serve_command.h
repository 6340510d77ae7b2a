// `tpsim serve`: a deployment on the wall clock, for clients that come when they like.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// `session`, `command` and `action` must outlive the action.
void add_serve_command(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
