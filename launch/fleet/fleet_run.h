// `tpsim run --fleet F`, `tpsim compare --fleet F,G`: the same load through one fleet after another.
#pragma once

#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

// `args`: load and outputs; its fleets are those of --fleet. Returns the exit status, as simulate(). Throws
// UserError for what cannot be carried out: a flag of a server, which belongs into the file, among others.
int simulate_fleets(const ServerArgs& args, bool compare, rank::MpiSession& session);

}  // namespace tpsim::launch
