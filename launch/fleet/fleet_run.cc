#include "launch/fleet/fleet_run.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "launch/cli/action.h"
#include "launch/deployment/elastic.h"
#include "launch/deployment/images.h"
#include "launch/deployment/router.h"
#include "launch/flags/output_flags.h"
#include "launch/fleet/fleet.h"
#include "launch/fleet/fleet_models.h"
#include "launch/simulation/reach.h"
#include "launch/simulation/replica_peers.h"
#include "launch/simulation/report_output.h"
#include "launch/simulation/run_monitor.h"
#include "launch/simulation/run_report.h"
#include "launch/simulation/simulate.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "proto/base/text.h"
#include "scheduler/engine.h"
#include "scheduler/peers.h"

namespace tpsim::launch {
namespace {

// Steps against what was measured on the GPU of their server.
class FleetReach : public scheduler::RunObserver {
 public:
  FleetReach(const Fleet& fleet, scheduler::RunObserver& sink) : sink_(sink) {
    for (const FleetMember& member : fleet.members) {
      reaches_.push_back(std::make_unique<Reach>(member.deployment, no_records_));
      of_replica_.insert(of_replica_.end(), member.count, reaches_.back().get());
    }
  }
  void on_request(const scheduler::RequestRecord& record) override {
    of_replica_[record.replica]->on_request(record);
    sink_.on_request(record);
  }
  void on_step(const scheduler::StepRecord& record) override { sink_.on_step(record); }
  bool wants_steps() const override { return sink_.wants_steps(); }
  scheduler::StepTally* tally_of(std::uint32_t replica) override {
    return of_replica_[replica]->tally_of(replica);
  }
  bool on_progress(const scheduler::Progress& progress) override { return sink_.on_progress(progress); }

  const Reach& of_member(std::size_t member) const { return *reaches_[member]; }

 private:
  scheduler::NoRecords no_records_;
  std::vector<std::unique_ptr<Reach>> reaches_;
  std::vector<Reach*> of_replica_;
  scheduler::RunObserver& sink_;
};

// What `of` says of the members, each once: "H200-SXM + L40S".
template <typename Of>
std::string joined(const Fleet& fleet, Of of) {
  std::vector<std::string> each;
  for (const FleetMember& member : fleet.members) {
    const std::string& text = of(member.deployment.header);
    if (std::ranges::find(each, text) == each.end()) each.push_back(text);
  }
  return fmt::format("{}", fmt::join(each, " + "));
}

// Whose server each replica is, and of several members what the report's names are of.
void describe(const Fleet& fleet, const FleetReach& reach, proto::RunReport& report) {
  Rows& rows = *report.mutable_server_args();
  rows["fleet"] = fleet.path;
  if (fleet.servers() > 1 && !fleet.split())
    write_router(fleet.members.front().deployment.router.config, rows);
  write_elastic(fleet.members.front().deployment.router.elastic, rows);
  for (proto::ReplicaReport& replica : *report.mutable_replicas()) {
    const FleetMember& member = fleet.member_of(replica.replica());
    replica.set_group(member.name);
    replica.set_hardware(member.deployment.header.hardware());
    replica.set_backend(member.deployment.header.backend());
    replica.set_gpus(member.deployment.ranks.num_ranks());
    if (fleet.models.size() > 1) replica.set_model(fleet.models[member.model].name);
  }
  if (fleet.members.size() == 1) return;
  report.set_hardware(joined(
      fleet, [](const auto& header) -> const auto& { return header.hardware(); }));
  report.set_backend(joined(
      fleet, [](const auto& header) -> const auto& { return header.backend(); }));
  report.set_model(joined(
      fleet, [](const auto& header) -> const auto& { return header.model(); }));
  report.clear_error_bands();  // no fleet of unequal servers was measured
  for (std::size_t i = 1; i < fleet.members.size(); ++i)
    for (proto::Extrapolation& beyond : reach.of_member(i).extrapolations(fleet.members[i].deployment.header))
      *report.add_extrapolations() = std::move(beyond);
}

// `peers`: processes that share the replicas out; null: this one has all.
proto::RunReport serve(const Fleet& fleet, const scheduler::StreamedWorkload& load,
                       scheduler::RunObserver& observer, PerfettoOutput& perfetto, std::uint32_t threads,
                       scheduler::Peers* peers) {
  const FleetMember& first = fleet.members.front();
  const auto drawn = with_models_drawn(fleet, first.args.load_seed(), load);
  const scheduler::StreamedWorkload& workload = drawn ? *drawn : load;
  const scheduler::WorkloadOutline& outline = workload.outline();
  std::vector<scheduler::LoadConfig> loads;
  for (const FleetMember& member : fleet.members)
    loads.push_back(load_config(member.args, member.deployment, outline));
  loads.front().router.models = replicas_of_models(fleet, outline);
  if (peers != nullptr &&
      (fleet.servers() == 1 || serves_alone(*peers, first.args, fleet.split(), loads.front(), outline))) {
    if (peers->process() > 0) return {};
    peers = nullptr;
  }
  PricedReplicas replicas = fleet.split() ? PricedReplicas(first.deployment) : PricedReplicas(threads, peers);
  for (std::size_t i = 0; i < loads.size() && !fleet.split(); ++i)
    replicas.add(fleet.members[i].deployment, fleet.members[i].count, loads[i].front_end);
  FleetReach reach(fleet, observer);
  for (std::uint32_t i = 0; peers == nullptr && i < fleet.servers(); ++i)
    perfetto.add_replica(*replicas.deployments()[i], *replicas.executors()[i],
                         fmt::format("replica {} ({})", i, fleet.member_of(i).name));
  const proto::RunReport scheduled =
      scheduler::run_workload(replicas.fleet(), loads.front(), workload, perfetto.begin_run(reach));
  std::vector<proto::RankReport> ranks = replicas.finish();
  add_window_bytes(replicas.deployments(), scheduled, ranks);
  proto::RunReport report =
      compose_report(first.args, first.deployment, outline, scheduled, std::move(ranks), reach.of_member(0));
  describe(fleet, reach, report);
  double gpu_hour = 0;
  for (const FleetMember& member : fleet.members)
    gpu_hour += member.count * member.deployment.ranks.num_ranks() *
                gpu_hour_cost(member.args, member.deployment.hardware);
  add_cost(gpu_hour, report);
  return report;
}

// What a server is asked for is of the file, not of the command line, which would mean all servers or none.
void refuse_server_flags(const ServerArgs& args, bool compare) {
  const std::vector<std::string> of_load = load_flags();
  for (const auto& [flag, value] : args.given) {
    if (flag != "--fleet" && flag != "--jobs" && std::ranges::find(of_load, flag) == of_load.end())
      throw_user_error("{}: is of a server; with --fleet it stands in the args of those that it is for",
                       flag);
  }
  check_output(args, compare, /*swept=*/false);
  check_elastic_args(args.elastic);
  const std::pair<std::string_view, bool> alone[] = {{"--record-batches", !args.record_batches.empty()},
                                                     {"--checkpoint", !args.checkpoint.empty()},
                                                     {"--resume", !args.resume.empty()},
                                                     {"--max-goodput-rate", args.max_goodput_rate}};
  for (const auto& [flag, given] : alone)
    if (given) throw_user_error("{}: of a fleet is not simulated; leave it out, or --fleet", flag);
}

std::vector<Fleet> resolve_fleets(const ServerArgs& args, bool compare) {
  const std::vector<std::string> paths = split_list(args.router.fleet, ',');
  if (paths.size() > 1 && !compare)
    throw_user_error("--fleet {}: takes one file here; `tpsim compare` takes a list and runs each of them",
                     args.router.fleet);
  std::vector<Fleet> fleets;
  for (const std::string& path : paths) {
    if (std::ranges::count(paths, path) > 1)
      throw_user_error("--fleet {}: {} is listed twice", args.router.fleet, path);
    fleets.push_back(resolve_fleet(read_fleet_file(path), args));
  }
  return fleets;
}

std::string name_of(const Fleet& fleet) { return std::filesystem::path(fleet.path).stem().string(); }

// By which the runs of a comparison are told apart.
proto::Sweep names_of(const std::vector<Fleet>& fleets) {
  proto::Sweep sweep;
  proto::SweepAxis& axis = *sweep.add_axes();
  axis.set_flag("fleet");
  for (const Fleet& fleet : fleets) axis.add_values(name_of(fleet));
  return sweep;
}

std::unique_ptr<const scheduler::StreamedWorkload> workload_of(const std::vector<Fleet>& fleets) {
  const FleetMember& first = fleets.front().members.front();
  return with_images_placed(first.args, first.deployment.model, first.deployment.host,
                            load_workload(first.args));
}

int serve_fleets(const ServerArgs& args, bool compare, const std::vector<Fleet>& fleets,
                 std::uint32_t threads, scheduler::Peers* peers) {
  const std::unique_ptr<const scheduler::StreamedWorkload> workload = workload_of(fleets);
  for (const Fleet& fleet : fleets)
    for (const FleetMember& member : fleet.members) check_workload(workload->outline(), member.deployment);
  std::vector<std::vector<std::string>> models;  // of requests, in each run
  for (const Fleet& fleet : fleets) {
    const auto drawn = with_models_drawn(fleet, args.load_seed(), *workload);
    const scheduler::WorkloadOutline& outline = (drawn ? *drawn : *workload).outline();
    replicas_of_models(fleet, outline);
    models.push_back(outline.models);
  }
  for (const Fleet& fleet : fleets) {
    if (!fleet.ignored_flags.empty())
      spdlog::warn("{}: {}: of no meaning to a simulation", fleet.path, fmt::join(fleet.ignored_flags, ", "));
    for (const FleetMember& member : fleet.members) {
      for (const std::string& note : member.deployment.notes) spdlog::info("{}: {}", member.name, note);
      for (const std::string& warning : member.deployment.warnings)
        spdlog::warn("{}: {}", member.name, warning);
    }
    if (fleet.members.size() > 1)
      spdlog::warn("{}: no fleet of unequal servers was measured, so that there are no error bands",
                   fleet.path);
  }
  for (const std::string& note : workload->outline().notes) spdlog::warn("{}", note);
  ServerArgs written = args;  // for what the columns of records are
  written.disaggregation.pd_disaggregation = std::ranges::any_of(fleets, &Fleet::split);
  for (const Fleet& fleet : fleets)
    for (const FleetMember& member : fleet.members)
      written.hicache.enable = written.hicache.enable || member.args.hicache.enable;
  ReportOutput output(
      written, compare ? ReportOutput::Kind::kComparison : ReportOutput::Kind::kRun,
      std::ranges::any_of(fleets, [](const Fleet& fleet) { return fleet.models.size() > 1; }));
  ResultFile results(args.output_file);
  PerfettoOutput perfetto(args);
  output.plan(fleets.size());
  if (compare) output.begin_sweep(names_of(fleets));
  bool stopped = false;
  for (std::size_t i = 0; i < fleets.size(); ++i) {
    const Fleet& fleet = fleets[i];
    const std::string name = name_of(fleet);
    ProgressBar progress(ProgressBar::mode_for_stderr(!args.quiet && !args.no_progress), name);
    RunMonitor monitor(output.begin_run(name, models[i]), progress);
    proto::RunReport report = serve(fleet, *workload, monitor, perfetto, threads, peers);
    stopped = report.stopped_early();
    if (compare) (*report.mutable_settings())["fleet"] = name;
    results.add(report);
    output.end_run(std::move(report));
    if (stopped) break;
  }
  {
    const StopFlag::Writing writing;
    output.write();
    results.write();
    perfetto.write();
  }
  if (!stopped) return kDone;
  spdlog::error("interrupted; what was finished is reported");
  return kStoppedEarly;
}

}  // namespace

int simulate_fleets(const ServerArgs& args, bool compare, rank::MpiSession& session) {
  set_up_logging(args, session.process() == 0);
  refuse_server_flags(args, compare);
  const std::vector<Fleet> fleets = resolve_fleets(args, compare);
  if (session.num_processes() == 1)
    return serve_fleets(args, compare, fleets, replica_threads(args), /*peers=*/nullptr);
  const auto threads = [&](const SessionPeers& peers) {
    return replica_threads(args, peers.alone(fleets.front().members.front().deployment));
  };
  return share_replicas(
      args, session,
      [&](SessionPeers& peers) { return serve_fleets(args, compare, fleets, threads(peers), &peers); },
      [&](SessionPeers& peers) {
        const auto workload = workload_of(fleets);
        scheduler::NoRecords no_records;
        PerfettoOutput no_trace(ServerArgs{});
        for (const Fleet& fleet : fleets)
          serve(fleet, *workload, no_records, no_trace, threads(peers), &peers);
      });
}

}  // namespace tpsim::launch
