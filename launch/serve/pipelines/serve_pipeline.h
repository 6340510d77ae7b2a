// `tpsim serve` of a diffusion pipeline.
#pragma once

#include "launch/cli/action.h"
#include "rank/parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace tpsim::launch {

// Declares its flags, and makes `action` what carries it out. All must outlive the action.
void add_pipeline_serve(CLI::App& command, rank::MpiSession& session, Action& action);

}  // namespace tpsim::launch
