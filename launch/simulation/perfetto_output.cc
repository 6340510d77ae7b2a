#include "launch/simulation/perfetto_output.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cmath>

#include "proto/base/error.h"

namespace tpsim::launch {

PerfettoOutput::PerfettoOutput(const ServerArgs& args) : path_(args.trace_out) {
  if (path_.empty()) return;
  file_.emplace(path_, "--trace-out " + path_, OutputFile::kFastGzip);
  if (file_->is_standard_output() && !args.quiet)
    throw_user_error(
        "--trace-out {}: is standard output, where the summary goes; name a file, or give --quiet", path_);
  trace_.emplace(*file_, TraceWindow{args.trace_from, args.trace_until});
}

scheduler::RunObserver& PerfettoOutput::begin_run(const Deployment& deployment,
                                                  const rank::DeploymentExecutor& executor,
                                                  scheduler::RunObserver& sink) {
  if (!trace_) return sink;
  begin(deployment, executor, sink, /*scheduled=*/true);
  return *this;
}

scheduler::RunObserver* PerfettoOutput::begin_replay(const Deployment& deployment,
                                                     const rank::DeploymentExecutor& executor) {
  if (!trace_) return nullptr;
  begin(deployment, executor, no_records_, /*scheduled=*/false);
  return this;
}

void PerfettoOutput::begin(const Deployment& deployment, const rank::DeploymentExecutor& executor,
                           scheduler::RunObserver& sink, bool scheduled) {
  const std::string name = fmt::format("{} on {}, {}", deployment.model.name, deployment.header.hardware(),
                                       deployment.attention.backends.name());
  trace_->begin_run(name, deployment.ranks.num_ranks(), deployment.ranks.pp_size, executor.rank_groups(),
                    scheduled);
  executor_ = &executor;
  sink_ = &sink;
}

void PerfettoOutput::on_request(const scheduler::RequestRecord& record) {
  trace_->add_request(record);
  sink_->on_request(record);
}

void PerfettoOutput::on_step(const scheduler::StepRecord& record) {
  executor_->last_pass(seconds_);
  trace_->add_step(record, seconds_);
  sink_->on_step(record);
}

void PerfettoOutput::write() {
  if (!trace_) return;
  trace_->finish();
  file_->commit();
  if (std::isfinite(trace_->cut_at()))
    spdlog::warn(
        "--trace-out {}: ends at {:.6g} s of the run's clock, where it had become {} MB, which is what "
        "browsers have room for; choose the part that you want to see with --trace-window FROM:UNTIL",
        path_, trace_->cut_at(), RunTrace::kMostBytes >> 20);
}

}  // namespace tpsim::launch
