// --checkpoint and --resume: the state of a run in a file.
//
// The file is replaced as a whole: a process that is killed leaves the state before or the new one. It holds
// a version, what the run is (every option, the requests, the program), the state and a hash of all of that;
// a damaged file, and that of another run, is refused. Rows of the CSV files are kept beside it
// (launch/report/record_spool.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "launch/deployment.h"
#include "launch/reach.h"
#include "launch/report_output.h"
#include "launch/server_args.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/checkpoints.h"
#include "scheduler/workload/streamed_workload.h"

namespace tpsim::launch {

// What a checkpoint is of: names of options as in server_args, and their values.
using RunIdentity = std::map<std::string, std::string>;
RunIdentity identity_of(const ServerArgs& args, const Deployment& deployment,
                        const scheduler::WorkloadOutline& workload);

// The text of a checkpoint, and back. read_checkpoint() throws UserError "--resume FILE: …" for what is
// damaged, of another version, or of another run than `identity`.
std::string checkpoint_text(const RunIdentity& identity, std::string_view state);
std::string read_checkpoint(std::string_view text, const std::string& file, const RunIdentity& identity);

// Throws UserError where --checkpoint names a file that is there: it may be what a killed run left.
void check_new_checkpoint(const ServerArgs& args);

class RunCheckpoints : public scheduler::Checkpoints {
 public:
  // Of a run whose records go to `records`. With --resume reads the file; throws UserError as
  // read_checkpoint() does.
  RunCheckpoints(const ServerArgs& args, RunIdentity identity, ReportOutput& records);
  // What goes on with the run; before it begins. Throws UserError where `executor` keeps no state.
  void attach(rank::DeploymentExecutor& executor, Reach& reach);
  // The run is over and its report in place: the file is of no use any more.
  void remove() const;

  std::string_view resumed() override { return resumed_; }
  void read_rest(StateReader& state) override;
  bool due() override;
  void save(StateWriter& state) override;

 private:
  const std::filesystem::path file_;
  const RunIdentity identity_;
  const std::chrono::duration<double> every_;
  ReportOutput& records_;
  rank::DeploymentExecutor* executor_ = nullptr;
  Reach* reach_ = nullptr;
  std::string resumed_;
  std::uint64_t asked_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tpsim::launch
