#include "launch/simulation/simulate.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/action.h"
#include "launch/deployment/images.h"
#include "launch/deployment/resolve.h"
#include "launch/deployment/speculation.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/batch_stream.h"
#include "launch/simulation/checkpoint.h"
#include "launch/simulation/goodput_search.h"
#include "launch/simulation/launch_line.h"
#include "launch/simulation/reach.h"
#include "launch/simulation/replica_peers.h"
#include "launch/simulation/report_output.h"
#include "launch/simulation/run_monitor.h"
#include "launch/simulation/run_report.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/local_ranks.h"
#include "scheduler/engine.h"
#include "scheduler/peers.h"

namespace tpsim::launch {

void announce_load(const scheduler::WorkloadOutline& workload) {
  for (const std::string& note : workload.notes) spdlog::warn("{}", note);
  if (workload.models.size() > 1)
    spdlog::warn("{}: requests name {} models, one serves them all; --fleet has servers of several",
                 workload.name, workload.models.size());
}

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
  if (deployment.disaggregation.decode_side == nullptr) return;
  const scheduler::SchedulerConfig& decode = deployment.disaggregation.decode_side->scheduler;
  const std::uint64_t reserved = decode.disaggregation.num_reserved_decode_tokens;
  if (workload.shortest_prompt + reserved > decode.max_total_num_tokens)
    throw_user_error(
        "--decode-args: the KV pool of {} tokens of a decode server is too small for any request of {}, "
        "whose shortest needs {} and {} of --num-reserved-decode-tokens",
        decode.max_total_num_tokens, workload.name, workload.shortest_prompt, reserved);
}

namespace {

// `first` carries out the first of `replicas`.
void trace_replicas(const rank::DeploymentExecutor& first, const PricedReplicas& replicas,
                    PerfettoOutput& perfetto) {
  const scheduler::Fleet& fleet = replicas.fleet();
  const std::span<const Deployment* const> deployments = replicas.deployments();
  for (std::size_t i = 0; i < deployments.size(); ++i) {
    std::string label = deployments.size() > 1 ? fmt::format("replica {}", i) : "";
    if (!fleet.decode.empty()) label += i < fleet.servers.size() ? " (prefill)" : " (decode)";
    perfetto.add_replica(*deployments[i], i == 0 ? first : *replicas.executors()[i - 1], label);
  }
}

}  // namespace

proto::RunReport serve_deployment(const Stage& stage, const Deployment& deployment,
                                  const scheduler::StreamedWorkload& workload,
                                  scheduler::RunObserver& observer, std::optional<std::string>& loss,
                                  PerfettoOutput* perfetto, RunCheckpoints* checkpoints,
                                  std::uint32_t threads) {
  const scheduler::WorkloadOutline& outline = workload.outline();
  const scheduler::LoadConfig load = load_config(stage.args(), deployment, outline);
  scheduler::Peers* peers = stage.peers();
  if (peers != nullptr &&
      serves_alone(*peers, stage.args(), deployment.disaggregation.decode_side != nullptr, load, outline)) {
    if (peers->process() > 0) return {};
    peers = nullptr;
  }
  const std::unique_ptr<rank::DeploymentExecutor> executor = stage.make_executor(deployment);
  std::optional<BatchStreamWriter> recording;
  std::optional<RecordingExecutor> recorder;
  if (!stage.args().record_batches.empty()) {
    recording.emplace(stage.args().record_batches, stream_header(deployment, outline.name));
    recorder.emplace(*executor, *recording);
  }
  LossTolerantExecutor tolerant(recorder ? static_cast<scheduler::Executor&>(*recorder) : *executor);
  const PricedReplicas replicas(deployment, &tolerant, threads, peers);
  Reach reach(deployment, observer);
  if (checkpoints != nullptr) checkpoints->attach(*executor, reach);
  if (perfetto != nullptr) trace_replicas(*executor, replicas, *perfetto);
  scheduler::RunObserver& traced =
      perfetto == nullptr ? static_cast<scheduler::RunObserver&>(reach) : perfetto->begin_run(reach);
  proto::RunReport scheduled = scheduler::run_workload(replicas.fleet(), load, workload, traced, checkpoints);
  if (recording) recording->commit();
  loss = tolerant.loss();
  std::vector<proto::RankReport> ranks;
  if (!loss) {
    try {
      ranks = replicas.finish(executor.get());
    } catch (const rank::RankLost& lost) {
      loss = lost.what();
      scheduled.set_stopped_early(true);
    }
  }
  add_window_bytes(replicas.deployments(), scheduled, ranks);
  return compose_report(stage.args(), deployment, outline, scheduled, std::move(ranks), reach);
}

namespace {

// The same load served without speculation, on priced ranks of this process.
proto::RunReport serve_without_speculation(const ServerArgs& args, const Deployment& deployment,
                                           const scheduler::StreamedWorkload& workload) {
  ServerArgs plain = args;
  plain.speculation = {};
  plain.record_batches.clear();
  plain.trace_out.clear();
  // As many requests at a time, on all data-parallel ranks together.
  plain.max_running_requests = args.max_running_requests.value_or(deployment.scheduler.max_running_requests *
                                                                  deployment.parallel.layout.dp_size);
  // The backends of this run, not those that would be chosen.
  plain.attention_backends = {deployment.attention.backends};
  const Deployment without = std::move(resolve_deployments(plain, /*compare=*/true).at(0));
  const PricedReplicas replicas(without);
  scheduler::NoRecords no_records;
  return scheduler::run_workload(replicas.fleet(), load_config(args, without, workload.outline()), workload,
                                 no_records);
}

// Of one of the backends that are compared.
std::vector<std::string> launch_of(ServerArgs args, const Deployment& deployment) {
  args.attention_backends = {deployment.attention.backends};
  return launch_commands(args);
}

std::unique_ptr<const scheduler::StreamedWorkload> workload_of(const ServerArgs& args,
                                                               const std::vector<Deployment>& deployments) {
  return with_images_placed(args, deployments.front().model, deployments.front().host, load_workload(args));
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
  const std::unique_ptr<const scheduler::StreamedWorkload> workload = workload_of(args, deployments);
  const scheduler::WorkloadOutline& outline = workload->outline();
  announce_load(outline);
  for (const Deployment& deployment : deployments) {
    check_workload(outline, deployment);
    check_accept_lens(deployment.speculation, args.speculation.accept_from_trace, outline);
  }

  if (checkpoints) checkpoints->set_identity(identity_of(args, deployments.front(), *workload));
  ReportOutput output(args, compare ? ReportOutput::Kind::kComparison : ReportOutput::Kind::kRun);
  ResultFile results(args.output_file);
  PerfettoOutput perfetto(args);
  output.plan(deployments.size());
  if (all != nullptr) output.note(*all);
  if (checkpoints) checkpoints->set_records(output);
  std::optional<std::string> loss;
  bool stopped = false;
  for (const Deployment& deployment : deployments) {
    ProgressBar progress(ProgressBar::mode_for_stderr(!args.quiet && !args.no_progress),
                         deployment.attention.backends.name());
    try {
      RunMonitor monitor(output.begin_run(deployment.attention.backends.name()), progress);
      proto::RunReport report =
          serve_deployment(stage, deployment, *workload, monitor, loss, &perfetto,
                           checkpoints ? &*checkpoints : nullptr, replica_threads(args, stage.group()));
      stopped = report.stopped_early();
      // Computed passes tell this machine's time, and nothing of what speculation gains.
      if (report.has_speculation() && !args.numeric() && !stopped)
        add_speedup(serve_without_speculation(args, deployment, *workload), report);
      if (args.max_goodput_rate && !stopped) {
        scheduler::NoRecords no_records;
        RunMonitor search_monitor(no_records, progress);
        const auto on_rate = [&](double rate) {
          progress.set_label(
              fmt::format("{} at {:.4g} requests/s", deployment.attention.backends.name(), rate));
        };
        add_goodput(search_max_goodput_rate(args, deployment, *workload, {}, on_rate, search_monitor),
                    report);
        stopped = report.max_goodput_search().outcome() == "stopped";
      }
      results.add(report);
      output.end_run(std::move(report), compare ? launch_of(args, deployment) : std::vector<std::string>{});
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
    perfetto.write();
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
  const auto lead = [&](const Stage& stage) { return schedule(stage, compare, all, deployments); };
  if (session.num_processes() == 1 || deployments.front().replicas() == 1)
    return run_on_ranks(args, deployments, session, lead);
  return share_replicas(
      args, session,
      [&](SessionPeers& peers) { return lead(Stage(args, peers.alone(deployments.front()), peers)); },
      [&](SessionPeers& peers) {
        const auto workload = workload_of(args, deployments);
        const rank::ProcessGroup alone = peers.alone(deployments.front());
        for (const Deployment& deployment : deployments) {
          scheduler::NoRecords no_records;
          std::optional<std::string> loss;
          serve_deployment(Stage(args, alone, peers), deployment, *workload, no_records, loss,
                           /*perfetto=*/nullptr, /*checkpoints=*/nullptr, replica_threads(args, alone));
        }
      });
}

}  // namespace tpsim::launch
