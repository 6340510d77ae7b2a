// The commands that answer from prices. Each declares the flags of `command`; when that was parsed, `action`
// becomes what carries it out and returns the exit status.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// `session`, `command` and `action` must outlive the action.
void add_run_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_compare_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_replay_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_backends_command(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
