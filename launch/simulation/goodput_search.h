// --max-goodput-rate: the highest request rate at which enough requests meet their service levels.
#pragma once

#include <functional>
#include <optional>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "proto/report.pb.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Runs the load at `rate` requests per second, infinity for all at once; empty: a signal stopped it.
using ProbeRate = std::function<std::optional<proto::GoodputProbe>(double rate)>;

// How a rate is looked for.
struct RateSearch {
  double share = 0.99;              // of the requests that must be within their levels
  double resolution = 1.01;         // of the rate found, against the lowest that is known not to be
  double step = 2;                  // between rates until the highest lies between two
  std::optional<double> near = {};  // a rate to begin with, requests per second; else all at once
  bool brief = false;               // probes end once it is certain whether they are good, but all at once
  bool at_least = false;            // a rate below `near` is of no interest: outcome "stopped"
};

struct GoodputRate {
  std::optional<double> rate;  // requests per second; none: `search` says why
  proto::GoodputSearch search;
};

// Tries all at once, then the rate that this was served at, goes on in steps until the highest rate that is
// good enough lies between two probes, and halves what is between them (geometrically) to the resolution.
// From a rate to begin with it tries all at once where two are good. That a rate is good says nothing certain
// about lower ones; every probe is in the result. Gives up as unreachable at a rate so low that requests are
// hardly ever in flight together. Of `search`, outcome and probes are filled.
GoodputRate search_rates(const RateSearch& how, const ProbeRate& probe);

// The search for `deployment`. Every probe is a run of the whole workload with the same seed, all ranks in
// this process. A trace with times is offered faster or slower by time_scale, so that its bursts stay;
// everything else by request_rate. The share is that of `args`. `on_rate` is called before each probe;
// `observer` can stop it.
GoodputRate search_max_goodput_rate(const ServerArgs& args, const Deployment& deployment,
                                    const scheduler::StreamedWorkload& workload, RateSearch how,
                                    const std::function<void(double rate)>& on_rate,
                                    scheduler::RunObserver& observer);

}  // namespace tpsim::launch
