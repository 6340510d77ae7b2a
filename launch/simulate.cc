#include "launch/simulate.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/batch_stream.h"
#include "launch/checkpoint.h"
#include "launch/commands.h"
#include "launch/deployment.h"
#include "launch/error_bands/error_band.h"
#include "launch/error_bands/residuals.h"
#include "launch/goodput_search.h"
#include "launch/images.h"
#include "launch/logging.h"
#include "launch/parallel_args.h"
#include "launch/reach.h"
#include "launch/report_output.h"
#include "launch/result_file.h"
#include "launch/run_monitor.h"
#include "launch/run_traits.h"
#include "launch/speculation.h"
#include "launch/stage.h"
#include "launch/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/modeled_executor.h"
#include "rank/parallel/rank_lost.h"
#include "scheduler/engine.h"

namespace tpsim::launch {

void check_workload(const scheduler::WorkloadOutline& workload, const Deployment& deployment) {
  const std::uint64_t shortest = workload.shortest_prompt + 1;
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

proto::RunReport serve_deployment(const Stage& stage, const Deployment& deployment,
                                  const scheduler::StreamedWorkload& workload,
                                  scheduler::RunObserver& observer, std::optional<std::string>& loss,
                                  TraceOutput* trace, RunCheckpoints* checkpoints) {
  const scheduler::WorkloadOutline& outline = workload.outline();
  const std::unique_ptr<rank::DeploymentExecutor> executor = stage.make_executor(deployment);
  std::optional<BatchStreamWriter> recording;
  std::optional<RecordingExecutor> recorder;
  if (!stage.args().record_batches.empty()) {
    recording.emplace(stage.args().record_batches, stream_header(deployment, outline.name));
    recorder.emplace(*executor, *recording);
  }
  LossTolerantExecutor tolerant(recorder ? static_cast<scheduler::Executor&>(*recorder) : *executor);
  proto::RunReport report = deployment.header;
  report.set_trace(outline.name);
  Reach reach(measured_ranges(deployment), observer);
  if (checkpoints != nullptr) checkpoints->attach(*executor, reach);
  scheduler::RunObserver& traced = trace == nullptr ? static_cast<scheduler::RunObserver&>(reach)
                                                    : trace->begin_run(deployment, *executor, reach);
  report.MergeFrom(scheduler::run_workload(deployment.scheduler, load_config(stage.args(), outline), workload,
                                           tolerant, traced, checkpoints));
  describe_stages(deployment, report);
  if (recording) recording->commit();
  loss = tolerant.loss();
  if (!loss) {
    try {
      // Ranks know pages; window parts of them are the scheduler's affair.
      const double windows = report.peak_swa_usage() * static_cast<double>(report.swa_pool_tokens());
      for (proto::RankReport& rank : executor->finish()) {
        const std::uint64_t bytes = deployment.swa_bytes_per_token.at(rank.rank() / deployment.ranks.tp_size);
        rank.set_peak_kv_bytes(rank.peak_kv_bytes() +
                               static_cast<std::uint64_t>(windows * static_cast<double>(bytes)));
        *report.add_ranks() = std::move(rank);
      }
    } catch (const rank::RankLost& lost) {
      loss = lost.what();
      report.set_stopped_early(true);
    }
  }
  finish_image_report(deployment.layout.dp_size, report);
  write_speculation_shares(report);
  if (stage.args().numeric()) return report;
  reach.write(report);
  if (!report.stopped_early())
    write_error_bands(catalogue_residuals(), traits_of(stage.args(), deployment, outline, report),
                      carried_over(report), report);
  return report;
}

namespace {

// Serves the same load without speculation, for what it gains. Priced passes only: computed ones tell this
// machine's time.
void write_speedup(const ServerArgs& args, const Deployment& deployment,
                   const scheduler::StreamedWorkload& workload, proto::RunReport& report) {
  if (args.numeric() || !report.has_speculation() || report.stopped_early()) return;
  ServerArgs plain = args;
  plain.speculation = {};
  plain.record_batches.clear();
  plain.trace_out.clear();
  // As many requests at a time, on all data-parallel ranks together.
  plain.max_running_requests = args.max_running_requests.value_or(deployment.scheduler.max_running_requests *
                                                                  deployment.layout.dp_size);
  // The backends of this run, not those that would be chosen.
  const BackendPair backends = deployment.backends;
  plain.attention_backends = {backends};
  const Deployment without = std::move(resolve_deployments(plain, /*compare=*/true).at(0));
  rank::ProcessGroup here;
  here.tp_size = args.tp_size;
  rank::ModeledExecutor executor(without.local_ranks(here));
  scheduler::NoRecords no_records;
  const proto::RunReport run = scheduler::run_workload(
      without.scheduler, load_config(args, workload.outline()), workload, executor, no_records);
  proto::Speculation& out = *report.mutable_speculation();
  if (report.median_tpot_ms() > 0) out.set_tpot_speedup(run.median_tpot_ms() / report.median_tpot_ms());
  if (report.duration() > 0) out.set_duration_speedup(run.duration() / report.duration());
}

int schedule(const Stage& stage, bool compare, const AllBackends* all,
             const std::vector<Deployment>& deployments) {
  const ServerArgs& args = stage.args();
  std::optional<RunCheckpoints> checkpoints;  // of the only run
  if (!args.checkpoint_file().empty()) {
    if (!stage.alone())
      throw_user_error(
          "{} {}: keeps runs of one process; leave mpirun out, one process stands in for all ranks",
          args.resume.empty() ? "--checkpoint" : "--resume", args.checkpoint_file());
    checkpoints.emplace(args);
  }
  for (const Deployment& deployment : deployments) {
    for (const std::string& note : deployment.notes) spdlog::info("{}", note);
    for (const std::string& warning : deployment.warnings) spdlog::warn("{}", warning);
  }
  const std::unique_ptr<const scheduler::StreamedWorkload> workload =
      with_images_placed(args, deployments.front().model, load_workload(args));
  const scheduler::WorkloadOutline& outline = workload->outline();
  for (const std::string& note : outline.notes) spdlog::warn("{}", note);
  for (const Deployment& deployment : deployments) {
    check_workload(outline, deployment);
    check_accept_lens(deployment.speculation, args.speculation.accept_from_trace, outline);
  }

  if (checkpoints) checkpoints->set_identity(identity_of(args, deployments.front(), *workload));
  ReportOutput output(args, compare ? ReportOutput::Kind::kComparison : ReportOutput::Kind::kRun);
  ResultFile results(args.output_file);
  TraceOutput trace(args);
  output.plan(deployments.size());
  if (all != nullptr) output.note(*all);
  if (checkpoints) checkpoints->set_records(output);
  std::optional<std::string> loss;
  bool stopped = false;
  for (const Deployment& deployment : deployments) {
    ProgressBar progress(ProgressBar::mode_for_stderr(!args.quiet && !args.no_progress),
                         deployment.backends.name());
    try {
      RunMonitor monitor(output.begin_run(deployment.backends.name()), progress);
      proto::RunReport report = serve_deployment(stage, deployment, *workload, monitor, loss, &trace,
                                                 checkpoints ? &*checkpoints : nullptr);
      stopped = report.stopped_early();
      write_speedup(args, deployment, *workload, report);
      if (args.max_goodput_rate && !stopped) {
        scheduler::NoRecords no_records;
        RunMonitor search_monitor(no_records, progress);
        const auto on_rate = [&](double rate) {
          progress.set_label(fmt::format("{} at {:.4g} requests/s", deployment.backends.name(), rate));
        };
        search_max_goodput_rate(args, deployment, *workload, on_rate, search_monitor, report);
        stopped = report.max_goodput_search().outcome() == "stopped";
      }
      results.add(report);
      output.end_run(std::move(report));
    } catch (const Stopped&) {  // while weights were loaded
      if (output.empty()) throw;
      stopped = true;
    }
    if (stopped) break;
  }
  {
    const StopFlag::Writing writing;
    output.write();
    results.write();
    trace.write();
    if (checkpoints && !stopped) {
      checkpoints->remove();
      output.remove_spools();
    }
  }
  if (loss) throw rank::RankLost(*loss);
  if (stopped) {
    if (checkpoints && checkpoints->file().there())
      spdlog::error("interrupted; what was finished is reported, and --resume {} goes on",
                    checkpoints->file().path().string());
    else
      spdlog::error("interrupted; what was finished is reported");
    return kStoppedEarly;
  }
  return kDone;
}

}  // namespace

int simulate(const ServerArgs& args, bool compare, const AllBackends* all, rank::MpiSession& session) {
  set_up_logging(args, session.process() == 0);
  const std::vector<Deployment> deployments = resolve_deployments(args, compare);
  return run_on_ranks(args, deployments, session,
                      [&](const Stage& stage) { return schedule(stage, compare, all, deployments); });
}

}  // namespace tpsim::launch
