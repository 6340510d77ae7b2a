// `tpsim run` and `tpsim compare`: the same workload through one deployment after another.
#pragma once

#include "launch/server_args.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

// Called in every process, with the same arguments. Returns the exit status: kDone, or kStoppedEarly where a
// signal or a lost rank ended it before its time (what was finished is reported). Throws UserError for what
// cannot be carried out.
int simulate(const ServerArgs& args, bool compare, rank::MpiSession& session);

}  // namespace tpsim::launch
