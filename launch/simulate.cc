#include "launch/simulate.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/commands.h"
#include "launch/deployment.h"
#include "launch/logging.h"
#include "launch/report_output.h"
#include "launch/run_monitor.h"
#include "launch/workload_args.h"
#include "proto/error.h"
#include "rank/parallel/modeled_executor.h"
#include "rank/parallel/mpi_executor.h"
#include "rank/parallel/mpi_worker.h"
#include "rank/parallel/rank_lost.h"
#include "rank/parallel/stop_flag.h"
#include "scheduler/engine.h"

namespace tpsim::launch {

namespace {

// A pool or a context in which no request at all can be served is a mistake, not a result.
void check_workload(const scheduler::Workload& workload, const std::vector<Deployment>& deployments) {
  std::uint64_t shortest = std::numeric_limits<std::uint64_t>::max();
  for (const scheduler::WorkloadRequest& request : workload.requests)
    shortest = std::min<std::uint64_t>(shortest, request.prompt.size() + 1);
  for (const Deployment& deployment : deployments) {
    const scheduler::SchedulerConfig& config = deployment.scheduler;
    if (shortest > config.max_total_num_tokens)
      throw_user_error(
          "--max-total-tokens {}: the KV pool is too small for any request of {}, whose shortest needs {} "
          "tokens",
          config.max_total_num_tokens, workload.name, shortest);
    if (shortest > config.context_length)
      throw_user_error(
          "--context-length {}: is too short for any request of {}, whose shortest needs {} tokens",
          config.context_length, workload.name, shortest);
  }
}

// What process 0 needs besides the deployments.
struct Stage {
  const ServerArgs& args;
  const rank::ProcessGroup& group;
  rank::WorkerLink* link;  // null: this process stands in for all ranks
  const scheduler::Workload& workload;
};

std::unique_ptr<rank::DeploymentExecutor> make_executor(const Stage& stage, const Deployment& deployment) {
  rank::LocalRanks ranks = deployment.local_ranks(stage.group);
  if (stage.link == nullptr) return std::make_unique<rank::ModeledExecutor>(std::move(ranks));
  return std::make_unique<rank::MpiExecutor>(*stage.link, std::move(ranks), deployment.configuration_hash());
}

// One deployment serves the workload. Returns its whole report; `loss` becomes the sentence of a lost rank.
proto::RunReport run_one(const Stage& stage, const Deployment& deployment, scheduler::RunObserver& sink,
                         std::optional<std::string>& loss) {
  const std::unique_ptr<rank::DeploymentExecutor> executor = make_executor(stage, deployment);
  LossTolerantExecutor tolerant(*executor);
  ProgressBar progress(ProgressBar::mode_for_stderr(!stage.args.quiet && !stage.args.no_progress),
                       deployment.backends.name());
  RunMonitor monitor(sink, progress);
  proto::RunReport report = deployment.header;
  report.set_trace(stage.workload.name);
  report.MergeFrom(scheduler::run_workload(deployment.scheduler, load_config(stage.args), stage.workload,
                                           tolerant, monitor));
  loss = tolerant.loss();
  if (!loss) {
    try {
      for (proto::RankReport& rank : executor->finish()) *report.add_ranks() = std::move(rank);
    } catch (const rank::RankLost& lost) {
      loss = lost.what();
      report.set_stopped_early(true);
    }
  }
  return report;
}

int schedule(const ServerArgs& args, bool compare, const std::vector<Deployment>& deployments,
             const rank::ProcessGroup& group, rank::WorkerLink* link) {
  for (const Deployment& deployment : deployments) {
    for (const std::string& note : deployment.notes) spdlog::info("{}", note);
  }
  const scheduler::Workload workload = load_workload(args);
  for (const std::string& note : workload.notes) spdlog::warn("{}", note);
  check_workload(workload, deployments);

  ReportOutput output(args, compare);
  const Stage stage{args, group, link, workload};
  std::optional<std::string> loss;
  for (const Deployment& deployment : deployments) {
    proto::RunReport report = run_one(stage, deployment, output.begin_run(deployment.backends.name()), loss);
    const bool stopped = report.stopped_early();
    output.end_run(std::move(report));
    if (stopped) break;
  }
  const bool stopped = output.stopped_early();
  output.write();
  if (loss) throw rank::RankLost(*loss);
  if (stopped) {
    spdlog::error("interrupted; what was finished is in the report");
    return kStoppedEarly;
  }
  return kDone;
}

}  // namespace

int simulate(const ServerArgs& args, bool compare, rank::MpiSession& session) {
  set_up_logging(args.log_level, session.process() == 0);
  const std::vector<Deployment> deployments = resolve_deployments(args, compare);
  const rank::ProcessGroup group = session.process_group(args.tp_size);
  rank::StopFlag::install(group.process == 0);
  if (group.process > 0) {
    return rank::run_worker(group, [&](std::uint32_t run_index) {
      const Deployment& deployment = deployments.at(run_index);
      return rank::WorkerRun{deployment.local_ranks(group), deployment.configuration_hash()};
    });
  }
  if (group.num_processes == 1) return schedule(args, compare, deployments, group, nullptr);
  // Whatever is thrown below, the link's end tells the other processes to stop.
  rank::WorkerLink link(session, group, rank::MpiOptions{});
  const int status = schedule(args, compare, deployments, group, &link);
  link.shutdown(status);
  return status;
}

}  // namespace tpsim::launch
