// --checkpoint and --resume: the state of a run in a file (launch/simulation/checkpoint_file.h).
//
// The file says first what the run is: every flag that was given, the requests, the model and the GPU, the
// program. A checkpoint of anything else is refused. Rows of the CSV files are kept beside it
// (launch/report/record_spool.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/checkpoint_file.h"
#include "launch/simulation/reach.h"
#include "launch/simulation/report_output.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/engine.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Flags and their values, and under names in parentheses what else makes the run.
using RunIdentity = std::map<std::string, std::string>;
RunIdentity identity_of(const ServerArgs& args, const Deployment& deployment,
                        const scheduler::StreamedWorkload& workload);
// Throws UserError "--resume FILE: …" unless a checkpoint of `was` is one of `is`.
void check_identity(const RunIdentity& was, const RunIdentity& is, const std::string& file);

class RunCheckpoints : public scheduler::Checkpoints {
 public:
  // Of --checkpoint or --resume, one of which is given. Throws UserError for a file that cannot be one of
  // them.
  explicit RunCheckpoints(const ServerArgs& args);
  // Before the run. Throws UserError where the file is of another one.
  void set_identity(RunIdentity identity);
  // What goes on with the run; before it begins. They outlive it.
  void set_records(ReportOutput& records) { records_ = &records; }
  void attach(rank::DeploymentExecutor& executor, Reach& reach);
  // The run is over and its report in place: the file is of no use any more.
  void remove() { file_.remove(); }
  const CheckpointFile& file() const { return file_; }

  std::string_view resumed() override { return state_; }
  void read_rest(StateReader& state) override;
  bool due() override;
  void save(const std::function<void(StateWriter&)>& write_run) override;

 private:
  CheckpointFile file_;
  const std::chrono::duration<double> every_;
  RunIdentity identity_;
  std::string text_;        // of the file, until it is read
  std::string_view state_;  // the run's part and what follows it
  rank::DeploymentExecutor* executor_ = nullptr;
  Reach* reach_ = nullptr;
  ReportOutput* records_ = nullptr;
  bool warned_ = false;  // that the last one could not be written
  std::uint64_t asked_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tpsim::launch
