// `tpsim generate`, `compare`, `run` and `backends` of a diffusion pipeline.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// Each declares its flags, and makes `action` what carries the command out. All must outlive the action.
void add_pipeline_generate(CLI::App& command, rank::MpiSession& session, Action& action);
void add_pipeline_compare(CLI::App& command, rank::MpiSession& session, Action& action);
void add_pipeline_run(CLI::App& command, rank::MpiSession& session, Action& action);
void add_pipeline_backends(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
