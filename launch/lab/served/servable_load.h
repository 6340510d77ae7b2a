// A measured load that tpsim can serve: its flags and requests resolved once, to be served as often as its
// prices are asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/lab/measurements/measured_load.h"
#include "launch/lab/served/load_records.h"
#include "proto/report.pb.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

class ServableLoad {
 public:
  // `flags`: load.flags, or others in their place. Throws UserError for what cannot be asked; what
  // load.refusal says is the caller's.
  ServableLoad(const MeasuredLoad& load, const std::vector<std::string>& flags);

  const ServerArgs& args() const { return args_; }
  const Deployment& deployment() const { return deployment_; }
  const scheduler::StreamedWorkload& workload() const { return *workload_; }
  // Serves the load on `deployment`: deployment(), or a copy with other prices. May be called by several
  // threads at once. Throws UserError where requests of the load do not fit.
  proto::RunReport serve(const Deployment& deployment, LoadRecords& records) const;

 private:
  ServerArgs args_;
  Deployment deployment_;
  std::shared_ptr<const scheduler::StreamedWorkload> workload_;
};

}  // namespace tpsim::launch
