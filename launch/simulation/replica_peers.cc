#include "launch/simulation/replica_peers.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "launch/cli/action.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/gather.h"
#include "scheduler/load.h"

namespace tpsim::launch {
namespace {

// Behind what a process says.
constexpr char kGoesOn = 0, kEnded = 1;

}  // namespace

SessionPeers::SessionPeers(rank::MpiSession& session, bool tells_steps)
    : Peers(tells_steps), session_(session), group_(session.process_group(session.num_processes())) {
  if (group_.process > 0) StopFlag::leave_to_process_0();
}

std::vector<std::string> SessionPeers::exchange(std::string bytes) {
  bytes.push_back(kGoesOn);
  std::vector<std::string> all = gather(bytes);
  if (status_) throw Over{};
  return all;
}

int SessionPeers::end(int status, const std::string& mistake) {
  if (!status_) gather(mistake + static_cast<char>(status) + kEnded);
  return status_.value_or(status);
}

std::vector<std::string> SessionPeers::gather(const std::string& bytes) {
  std::vector<std::string> all;
  try {
    all = rank::gather_by_all(
        group_, bytes, [] {}, /*often=*/true);
  } catch (const rank::RankLost&) {
    session_.mark_lost(kStoppedEarly);
    status_ = kStoppedEarly;
    throw;
  }
  for (std::string& each : all) {
    const bool ended = each.back() == kEnded;
    each.pop_back();
    if (!ended) continue;
    if (!status_) status_ = each.back();
    each.pop_back();
    if (!each.empty() && bytes.back() == kGoesOn) throw UserError(each);
  }
  return all;
}

rank::ProcessGroup SessionPeers::alone(const Deployment& deployment) const {
  rank::ProcessGroup alone;
  alone.tp_size = deployment.ranks.num_ranks();
  alone.job_on_host = group_.job_on_host;
  return alone;
}

bool serves_alone(const scheduler::Peers& peers, const ServerArgs& args, bool split,
                  const scheduler::LoadConfig& load, const scheduler::WorkloadOutline& workload) {
  std::string why;
  if (split) {
    why = "prefill apart from decode";
  } else if (load.max_concurrency > 0) {
    why = fmt::format("--max-concurrency {}", load.max_concurrency);
  } else if (load.elastic.enabled()) {
    const bool limits = load.elastic.admission.capacity > 0;
    why = !args.elastic.given().empty() ? args.elastic.given()
          : limits                      ? "--router-max-concurrent-requests"
                                        : "servers that fail, come or go";
  } else if (!scheduler::comes_by_itself(load, workload)) {
    why = fmt::format("the conversations of {}", workload.name);
  } else if (!args.trace_out.empty()) {
    why = "--trace-out";
  } else {
    return false;
  }
  if (peers.process() == 0)
    spdlog::warn("{}: under mpirun one process serves all replicas, the others have nothing to do", why);
  return true;
}

int share_replicas(const ServerArgs& args, rank::MpiSession& session,
                   const std::function<int(SessionPeers&)>& lead,
                   const std::function<void(SessionPeers&)>& follow) {
  if (args.trace == "-")
    throw_user_error("--trace -: under mpirun one process alone has a standard input; name a file");
  SessionPeers peers(session, /*tells_steps=*/!args.report_dir.empty());  // whose files have them
  try {
    int status = kDone;
    if (peers.process() == 0) {
      status = lead(peers);
    } else {
      follow(peers);
    }
    return peers.end(status);
  } catch (const SessionPeers::Over&) {
    return peers.end(kDone);
  } catch (const UserError& error) {
    peers.end(kRefused, error.what());
    throw;
  } catch (const Stopped&) {
    peers.end(kStoppedEarly);
    throw;
  } catch (...) {
    peers.end(kRefused);
    throw;
  }
}

}  // namespace tpsim::launch
