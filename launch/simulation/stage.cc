#include "launch/simulation/stage.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/backend_description.h"
#include "attention/selection/registry.h"
#include "launch/cli/action.h"
#include "launch/deployment/startup.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/farm.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_executor.h"
#include "rank/parallel/worker_link.h"

namespace tpsim::launch {
namespace {

// A process that computes is silent; one that is dead is noticed at once all the same. Seconds.
constexpr double kLongestComputation = 24 * 3600;

rank::MpiOptions link_options(const ServerArgs& args) {
  rank::MpiOptions options;
  if (args.numeric()) {
    options.synchronous = true;
    options.answer_timeout_seconds = kLongestComputation;
  }
  return options;
}

scheduler::ReplicaStart start_of(const Deployment& deployment) {
  if (!deployment.router.elastic.enabled()) return {};
  return {startup_seconds(deployment), deployment.ranks.num_ranks()};
}

}  // namespace

std::unique_ptr<rank::DeploymentExecutor> Stage::make_executor(const Deployment& deployment,
                                                               bool return_logits) const {
  if (numeric_ != nullptr) return numeric_->make_executor(link_, deployment, return_logits);
  rank::LocalRanks ranks = deployment.local_ranks(group_);
  if (link_ == nullptr) return std::make_unique<rank::ModeledExecutor>(std::move(ranks));
  return std::make_unique<rank::MpiExecutor>(*link_, std::move(ranks), deployment.configuration_hash());
}

PricedReplicas::PricedReplicas(const Deployment& deployment, scheduler::Executor* first,
                               std::uint32_t threads, scheduler::Peers* peers)
    : PricedReplicas(threads, peers) {
  if (first != nullptr) {
    fleet_.servers.push_back({&deployment.scheduler, first, nullptr, start_of(deployment)});
    deployments_.push_back(&deployment);
  }
  const Disaggregation& split = deployment.disaggregation;
  const std::uint32_t servers = split.decode_side ? split.prefill : deployment.router.replicas;
  add(deployment, servers - (first != nullptr ? 1 : 0), nullptr, fleet_.servers);
  if (!split.decode_side) return;
  add(*split.decode_side, split.decode, nullptr, fleet_.decode);
  fleet_.link = split.link;
  if (!deployment.router.elastic.enabled()) return;
  const std::optional<double>& seconds = deployment.router.startup_seconds;
  for (scheduler::FleetServer& server : fleet_.decode)
    server.start = {seconds ? *seconds : startup_seconds(*split.decode_side),
                    split.decode_side->ranks.num_ranks()};
}

void PricedReplicas::add(const Deployment& deployment, std::uint32_t count,
                         const scheduler::FrontEndConfig& front_end) {
  add(deployment, count, &front_end, fleet_.servers);
}

void PricedReplicas::add(const Deployment& deployment, std::uint32_t count,
                         const scheduler::FrontEndConfig* front_end,
                         std::vector<scheduler::FleetServer>& to) {
  rank::ProcessGroup here;
  here.tp_size = deployment.ranks.num_ranks();
  const scheduler::ReplicaStart start = start_of(deployment);
  if (deployment.ranks.images.encoder != nullptr) fleet_.threads = 1;  // its prices are of one thread
  // Prices of equal servers of one thread are looked up in the same tables, unless each compiles its own
  // kernels or plans the lengths that it meets (attention/backends/torch_native.cc).
  const bool remembers =
      deployment.fresh_kernels ||
      attention::find_backend(deployment.attention.backends.decode, "--decode-attention-backend")
              .row.fresh_decode == attention::FreshDecode::kEngines;
  std::vector<std::vector<std::shared_ptr<rank::RankModel>>> of_threads(fleet_.threads);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::unique_ptr<rank::ModeledExecutor>& executor = executors_.emplace_back();
    if (fleet_.peers == nullptr || fleet_.peers->has(static_cast<std::uint32_t>(to.size()))) {
      auto& models = of_threads[fleet_.thread_of(to.size())];
      if (models.empty() || remembers) models = deployment.make_models(here);
      executor = std::make_unique<rank::ModeledExecutor>(
          rank::LocalRanks(deployment.ranks, 0, deployment.ranks.num_ranks(), models));
    }
    to.push_back({&deployment.scheduler, executor.get(), front_end, start});
    deployments_.push_back(&deployment);
  }
}

std::vector<proto::RankReport> PricedReplicas::finish(rank::DeploymentExecutor* first) const {
  scheduler::Peers* const peers = fleet_.peers;
  const std::size_t before = first != nullptr ? 1 : 0;
  proto::RunReport told;  // of this process
  for (std::uint32_t i = 0; i < deployments_.size(); ++i) {
    if (peers != nullptr && !peers->has(i)) continue;
    for (proto::RankReport& rank : i < before ? first->finish() : executors_[i - before]->finish())
      *told.add_ranks() = std::move(rank);
  }
  // Ranks that compute have nothing to say of a run that ended before it began.
  if (peers == nullptr) return {told.mutable_ranks()->begin(), told.mutable_ranks()->end()};
  std::vector<proto::RunReport> heard;
  std::vector<proto::RankReport> ranks;
  for (const std::string& bytes : peers->exchange(told.SerializeAsString())) {
    if (peers->process() > 0) return ranks;
    heard.emplace_back().ParseFromString(bytes);
  }
  std::vector<int> next(heard.size());
  for (std::uint32_t i = 0; i < deployments_.size(); ++i) {
    const std::uint32_t process = peers->owner_of(i);
    for (std::uint32_t rank = 0; rank < deployments_[i]->ranks.num_ranks(); ++rank)
      ranks.push_back(std::move(*heard[process].mutable_ranks(next[process]++)));
  }
  return ranks;
}

std::uint32_t replica_threads(const ServerArgs& args, const rank::ProcessGroup& group) {
  return args.swept || !args.trace_out.empty() ? 1 : args.jobs.value_or(rank::cores_of_process(group));
}

void Stage::check_alive() const {
  if (link_ != nullptr) link_->check_alive();
}

int run_on_ranks(const ServerArgs& args, const std::vector<Deployment>& deployments,
                 rank::MpiSession& session, const std::function<int(const Stage&)>& schedule) {
  const rank::ProcessGroup group =
      session.process_group(args.tp_size * args.parallel.pp_size, 1, args.parallel.pp_size);
  if (group.process > 0) StopFlag::leave_to_process_0();
  return run_on_group(args, deployments, session, group, schedule);
}

int run_on_group(const ServerArgs& args, std::span<const Deployment> deployments, rank::MpiSession& session,
                 const rank::ProcessGroup& group, const std::function<int(const Stage&)>& schedule) {
  std::unique_ptr<NumericStage> numeric;
  if (args.numeric()) numeric = numeric_execution().make_stage(args, group);
  if (group.process > 0) {
    return rank::run_worker(group, [&](std::uint32_t run_index) {
      const Deployment& deployment = deployments[run_index];
      std::unique_ptr<rank::WorkerRanks> ranks;
      if (numeric != nullptr) {
        ranks = numeric->make_worker(deployment);
      } else {
        ranks = std::make_unique<rank::PricedRanks>(deployment.local_ranks(group));
      }
      return rank::WorkerRun{std::move(ranks), deployment.configuration_hash()};
    });
  }
  if (group.num_processes == 1) return schedule(Stage(args, group, nullptr, numeric.get()));
  // Whatever is thrown below, the link's end tells the other processes to stop.
  rank::WorkerLink link(session, group, link_options(args));
  // A worker that meets an error says so and comes to no further collective.
  if (numeric) numeric->set_while_waiting([&link] { link.poll(); });
  int status = 0;
  try {
    status = schedule(Stage(args, group, &link, numeric.get()));
  } catch (const Stopped&) {
    link.shutdown(kStoppedEarly);
    throw;
  }
  if (numeric) numeric->set_while_waiting(nullptr);
  link.shutdown(status);
  return status;
}

}  // namespace tpsim::launch
