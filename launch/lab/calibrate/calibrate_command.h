// `tpsim calibrate`: a hardware profile of the user's own measurements.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// As the functions of launch/commands/commands.h.
void add_calibrate_command(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
