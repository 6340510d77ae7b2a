// How much faster `mpirun -n P tpsim run --dp-size N …` would be on nodes that are not here.
//
// usage: tpsim_fleet_messages PROCESSES[,PROCESSES …] PER_NODE LATENCY_US GB_PER_S [FLAG of tpsim run …]
#include "tests/unit/scheduler/fleet_messages.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/deployment/resolve.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/text.h"
#include "scheduler/engine.h"

namespace tpsim::launch {
namespace {

// The duration that is simulated.
double serve(const ServerArgs& args, const Deployment& deployment, scheduler::Peers* peers) {
  const auto workload = load_workload(args);
  const PricedReplicas replicas(deployment, nullptr, /*threads=*/1, peers);
  scheduler::NoRecords no_records;
  return scheduler::run_workload(replicas.fleet(), load_config(args, deployment, workload->outline()),
                                 *workload, no_records)
      .duration();
}

int run(int argc, char** argv) {
  if (argc < 5) {
    fmt::print("usage: {} PROCESSES PER_NODE LATENCY_US GB_PER_S [FLAG of tpsim run …]\n", argv[0]);
    return 2;
  }
  const ServerArgs args = read_run_flags({argv + 5, argv + argc}, /*compare=*/false);
  const std::vector<Deployment> deployments = resolve_deployments(args, /*compare=*/false);
  scheduler::Network network;
  network.per_node = static_cast<std::uint32_t>(std::atoi(argv[2]));
  network.latency = std::atof(argv[3]) * 1e-6;
  network.bandwidth = std::atof(argv[4]) * 1e9;
  fmt::print("{:>9} {:>5} {:>8} {:>11} {:>9} {:>11} {:>10} {:>9} {:>8} {:>6}\n", "processes", "nodes",
             "rounds", "bytes/round", "seconds", "of messages", "process 0", "the most", "speed-up", "of P");
  double alone = 0, simulated = 0;
  std::string list = std::string("0,") + argv[1];  // 0: one process, that has no peers
  for (const std::string& word : split_list(list, ',')) {
    const auto peers = static_cast<std::uint32_t>(std::stoul(word)), processes = std::max(peers, 1U);
    scheduler::Turns turns(processes, network);
    std::vector<std::thread> threads;
    std::vector<double> durations(processes);
    for (std::uint32_t i = 0; i < processes; ++i)
      threads.emplace_back([&, i] {
        scheduler::Turns::Seat seat(turns, i);
        durations[i] = serve(args, deployments.front(), peers > 0 ? &seat : nullptr);
      });
    for (std::thread& thread : threads) thread.join();
    const double seconds = turns.computed() + turns.gathered();
    if (peers == 0) {
      alone = seconds;
      simulated = durations[0];
    }
    if (durations[0] != simulated) {
      fmt::print("{} processes simulate {} s, one {} s\n", processes, durations[0], simulated);
      return 1;
    }
    const std::uint64_t rounds = std::max<std::uint64_t>(turns.rounds(), 1);
    fmt::print("{:>9} {:>5} {:>8} {:>11} {:>9.2f} {:>11.3f} {:>10.2f} {:>9.2f} {:>8.2f} {:>6.2f}\n",
               peers == 0 ? "alone" : word, (processes + network.per_node - 1) / network.per_node,
               turns.rounds(), turns.bytes() / rounds, seconds, turns.gathered(), turns.cpu()[0],
               *std::ranges::max_element(turns.cpu()), alone / seconds, alone / seconds / processes);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::launch

int main(int argc, char** argv) {
  try {
    return tpsim::launch::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
