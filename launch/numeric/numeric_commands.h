// The commands that compute, and what lets others compute, too.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

struct NumericExecution;  // launch/deployment/numeric_execution.h

// As the functions of launch/commands/commands.h.
void add_generate_command(CLI::App& command, rank::MpiSession& session, Action& action);
void add_verify_command(CLI::App& command, rank::MpiSession& session, Action& action);
// Of a diffusion pipeline.
void add_verify_pipeline(CLI::App& command, rank::MpiSession& session, Action& action);

// For link_numeric_execution().
extern const NumericExecution kNumericExecution;

}  // namespace tpsim::launch
