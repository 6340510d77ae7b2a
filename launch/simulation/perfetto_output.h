// --trace-out: the Perfetto trace of a run, from the opening of its file to its place under its name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/perfetto/run_trace.h"
#include "proto/base/output_file.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/records.h"

namespace tpsim::launch {

class PerfettoOutput : private scheduler::RunObserver {
 public:
  // Opens the file, if one was asked for: what cannot be written is found out before the run. Throws
  // UserError naming --trace-out.
  explicit PerfettoOutput(const ServerArgs& args);

  // What takes the records of the run that `executor` carries out and passes them on to `sink`; `sink` itself
  // where no trace was asked for. Both must outlive the run.
  scheduler::RunObserver& begin_run(const Deployment& deployment, const rank::DeploymentExecutor& executor,
                                    scheduler::RunObserver& sink);
  // The same of passes alone, which nobody schedules; null where no trace was asked for.
  scheduler::RunObserver* begin_replay(const Deployment& deployment,
                                       const rank::DeploymentExecutor& executor);
  // Puts the file in place, and warns where it does not hold all of the run.
  void write();

 private:
  void begin(const Deployment& deployment, const rank::DeploymentExecutor& executor,
             scheduler::RunObserver& sink, bool scheduled);
  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord& record) override;
  bool on_progress(const scheduler::Progress& progress) override { return sink_->on_progress(progress); }

  const std::string path_;
  std::optional<OutputFile> file_;
  std::optional<RunTrace> trace_;
  // Of the run that goes on.
  const rank::DeploymentExecutor* executor_ = nullptr;
  scheduler::NoRecords no_records_;
  scheduler::RunObserver* sink_ = &no_records_;
  std::vector<rank::RankSeconds> seconds_;  // scratch
};

}  // namespace tpsim::launch
