// The report of a run, put together in one place: every part has one writer, which is given values. And which
// measured loads the run is like, for its error bands.
#pragma once

#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/goodput_search.h"
#include "launch/simulation/reach.h"
#include "proto/report.pb.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// What the deployment is (its header), what the scheduler measured (`scheduled`), what the ranks did
// (`ranks`, empty where they were lost), and what follows from these: stages, images, shares of speculation
// and, of priced runs, how far they went beyond what was measured (`reach`) and their error bands.
proto::RunReport compose_report(const ServerArgs& args, const Deployment& deployment,
                                const scheduler::WorkloadOutline& workload, const proto::RunReport& scheduled,
                                std::vector<proto::RankReport> ranks, const Reach& reach);

// `report`: of the run that served `workload`. Flags that pace the steps of all kernels alike (data-parallel
// attention, pipeline stages, no overlap, no graphs, mixed chunks) follow the backend's name.
proto::LoadTraits traits_of(const ServerArgs& args, const Deployment& deployment,
                            const scheduler::WorkloadOutline& workload, const proto::RunReport& report);

// Of a run with speculation: what it gained. `plain`: the same load served without.
void add_speedup(const proto::RunReport& plain, proto::RunReport& report);

// What --max-goodput-rate came to.
void add_goodput(GoodputRate found, proto::RunReport& report);

}  // namespace tpsim::launch
