// A plan's short runs: by the first requests of a load, until a clock ends them.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "proto/plan.pb.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// The first requests of a workload, which must outlive it.
class Beginning : public scheduler::StreamedWorkload {
 public:
  Beginning(const scheduler::StreamedWorkload& all, std::uint64_t requests)
      : scheduler::StreamedWorkload(all.outline().name, all.outline().format, {}, [&all, requests] {
          return [reader = all.read(), left = requests]() mutable {
            if (left == 0) return std::shared_ptr<const scheduler::WorkloadRequest>();
            --left;
            return reader();
          };
        }) {}
};

// What makes a run of the beginning hopeless, and how its rate is looked for (goodput_search.h).
struct Bar {
  double deadline = 0;  // seconds of its clock; 0: none
  // Requests outside their service levels; more make the run hopeless.
  double most_bad = std::numeric_limits<double>::infinity();
  // Of --max-goodput-rate.
  double resolution = 1.5, step = 1.5;
  std::optional<double> rate = {};  // requests per second
  bool at_least = false;
};

// `deployment`, of `args`, serves the beginning: the trial gets a report with what a ranking needs. It is of
// a run that was stopped early where that is hopeless, or `stop` becomes true.
void serve_beginning(const ServerArgs& args, const Deployment& deployment,
                     const scheduler::StreamedWorkload& beginning, const Bar& bar,
                     const std::atomic<bool>& stop, proto::PlanTrial& trial);

}  // namespace tpsim::launch
