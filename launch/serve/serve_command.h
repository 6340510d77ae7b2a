// `tpsim serve`: a deployment on the wall clock, for clients that come when they like.
#pragma once

#include <CLI/CLI.hpp>

#include "launch/commands.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

// `session`, `root` and `action` must outlive the action.
void add_serve_command(CLI::App& root, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
