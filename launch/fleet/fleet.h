// What the launch lines of a fleet come to: a deployment for each group of servers, and the router before
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/fleet/fleet_file.h"

namespace tpsim::launch {

// Servers that are alike.
struct FleetMember {
  std::string name;
  std::uint32_t count = 1;  // the most that there may be
  std::size_t model = 0;    // position in Fleet::models
  ServerArgs args;          // of the launch line, with the load of the fleet
  Deployment deployment;
};

// What a request may be for, where the router tells models apart.
struct FleetModel {
  std::string name;  // --served-model-name, or --model-path
  double share = 0;  // of requests, of the sum of all; 0: the load says itself
};

struct Fleet {
  std::string path;
  std::vector<FleetMember> members;        // in the order of the file, which is that of replicas
  std::vector<FleetModel> models;          // by --enable-igw; empty: all servers have one
  std::vector<std::string> ignored_flags;  // of launch lines, which mean nothing to a simulation

  // Whether there are two members, of which the first prefills and has the second's deployment
  // (launch/deployment/disaggregation.h).
  bool split() const { return members.front().deployment.disaggregation.decode_side != nullptr; }
  std::uint32_t servers() const;
  // The member that a replica is of. REQUIRES: replica < servers().
  const FleetMember& member_of(std::uint32_t replica) const;
  // Of a position in `models`; ascending.
  std::vector<std::uint32_t> replicas_of(std::size_t model) const;
};

// Load and outputs are those of `asked`; not `loaded`: there is no load. Throws UserError naming file and
// line for a launch line that cannot be carried out, and for servers of different models behind a router that
// does not tell them apart.
Fleet resolve_fleet(const FleetFile& file, const ServerArgs& asked, bool loaded = true);

}  // namespace tpsim::launch
