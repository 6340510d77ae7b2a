// A whole run: a workload, offered as LoadConfig says, through the scheduler to an executor.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "proto/base/archive.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/disaggregation/config.h"
#include "scheduler/executor.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Where a run leaves its state now and then, to be gone on with after the process was killed.
class Checkpoints {
 public:
  virtual ~Checkpoints() = default;

  // State that a run of the same configuration, load and workload left; empty: the run begins at its
  // beginning. Valid until read_rest().
  virtual std::string_view resumed() = 0;
  // After the run has read its own part: what else save() added.
  virtual void read_rest(StateReader& state) = 0;

  // Asked between two events. Whether the run should leave its state now.
  virtual bool due() = 0;
  // The state is put away: what `write_run` writes, the run's part, and what else goes on with it (executor,
  // records). Throws UserError where a run could not be gone on with.
  virtual void save(const std::function<void(StateWriter&)>& write_run) = 0;
};

// Runs `workload` to its end (or until the observer stops it) and returns the report's scheduler part:
// everything but names (backend, model, hardware, trace), ranks, calibration and server_args. What is held of
// the workload is what was sent and not answered, and what LoadGenerator reads ahead.
// `checkpoints`, of priced passes only: where the run leaves its state, and goes on from; null: nowhere.
// Throws UserError for a configuration that cannot be carried out, and whatever executor and workload throw.
proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints = nullptr);

// One server of a fleet. What is pointed to must outlive the run.
struct FleetServer {
  const SchedulerConfig* config;
  Executor* executor;
  const FrontEndConfig* front_end = nullptr;  // null: the load's
};
// Servers, and what lies between them. In reports and records they are numbered, `decode` after `servers`.
struct Fleet {
  std::vector<FleetServer> servers;  // that serve requests, or, where `decode` has some, prefill them
  // That go on with them; all with config.disaggregation of their mode, one data-parallel rank and pipeline
  // stage, equal page sizes, and a pool of KV alone.
  std::vector<FleetServer> decode;
  KvLinkConfig link;  // from each of the ones to each of the others
};
// The same through a fleet; load.router says which of `servers` a request is sent to, load.decode_router
// which of `decode`. REQUIRES: at least one server; one in all where there are checkpoints.
proto::RunReport run_workload(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload,
                              RunObserver& observer, Checkpoints* checkpoints = nullptr);

}  // namespace tpsim::scheduler
