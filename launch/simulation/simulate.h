// `tpsim run` and `tpsim compare`: the same workload through one deployment after another.
#pragma once

#include <optional>
#include <string>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/checkpoint.h"
#include "launch/simulation/report_output.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/sweep.h"
#include "proto/report.pb.h"
#include "rank/parallel/mpi_session.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// `deployment` serves the workload, with the executor of `stage`. Returns its whole report; `loss` becomes
// the sentence of a lost rank; `perfetto`, where given, receives a trace of the run, and `checkpoints` its
// state now and then. May be called by several threads at once, each with a stage of its own. `threads`: that
// run replicas.
proto::RunReport serve_deployment(const Stage& stage, const Deployment& deployment,
                                  const scheduler::StreamedWorkload& workload,
                                  scheduler::RunObserver& observer, std::optional<std::string>& loss,
                                  PerfettoOutput* perfetto = nullptr, RunCheckpoints* checkpoints = nullptr,
                                  std::uint32_t threads = 1);

// Says what a reader left out of the load, and that all its requests go to one model where they name several.
void announce_load(const scheduler::WorkloadOutline& workload);

// A pool or a context in which no request at all can be served is a mistake, not a result. Throws UserError.
void check_workload(const scheduler::WorkloadOutline& workload, const Deployment& deployment);

// Called in every process, with the same arguments. Returns the exit status: kDone, or kStoppedEarly where a
// signal or a lost rank ended it before its time (what was finished is reported). Throws UserError for what
// cannot be carried out.
// `all`: what --attention-backends all came to; null where backends were named.
int simulate(const ServerArgs& args, bool compare, const AllBackends* all, rank::MpiSession& session);

}  // namespace tpsim::launch
