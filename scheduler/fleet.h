// Servers that a load is shared among.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/disaggregation/config.h"
#include "scheduler/elastic/config.h"
#include "scheduler/executor.h"
#include "scheduler/peers.h"

namespace tpsim::scheduler {

// One server of a fleet. What is pointed to must outlive the run.
struct FleetServer {
  const SchedulerConfig* config;
  Executor* executor;                         // null: another process has it
  const FrontEndConfig* front_end = nullptr;  // null: the load's
  ReplicaStart start = {};                    // for LoadConfig::elastic
};
// Servers, and what lies between them. In reports and records they are numbered, `decode` after `servers`.
struct Fleet {
  std::vector<FleetServer> servers;  // that serve requests, or, where `decode` has some, prefill them
  // That go on with them; all with config.disaggregation of their mode, one pipeline stage, equal page sizes,
  // and a pool of KV alone.
  std::vector<FleetServer> decode;
  KvLinkConfig link;  // from each of the ones to each of the others
  // That run them: what lies between two looks of the router at its replicas they do side by side. The report
  // is the same for any number. Of pairs one thread runs all.
  std::uint32_t threads = 1;
  // Likewise; null: this process has all replicas.
  Peers* peers = nullptr;

  std::uint32_t size() const { return static_cast<std::uint32_t>(servers.size() + decode.size()); }
  // Which of its process's threads runs a replica; executors of one may share what is of one thread.
  std::uint32_t thread_of(std::size_t replica) const {
    return static_cast<std::uint32_t>(replica / (peers == nullptr ? 1 : peers->size()) % threads);
  }
};

}  // namespace tpsim::scheduler
