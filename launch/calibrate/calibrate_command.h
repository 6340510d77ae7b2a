// `tpsim calibrate`: a hardware profile of the user's own measurements.
#pragma once

#include <CLI/CLI.hpp>

#include "launch/commands.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

// As the functions of launch/commands.h.
void add_calibrate_command(CLI::App& root, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
