// The command that starts what was simulated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"

namespace tpsim::launch {

// Of ServerArgs::given, the flags of SGLang's server, under the names of its release (--sglang-version), and
// of attention_backends, where there is one, that pair: to be pasted into a shell. With flags of the router
// it is sglang_router's, which starts the replicas, too; replicas that need more than one host have a command
// each, on host1, host2 …, and the router one behind them. What the server reads from its environment stands
// in front. What SGLang chooses by itself is left to it. Computed runs and --fleet have
// none: a fleet's file holds its servers' own.
std::vector<std::string> launch_commands(const ServerArgs& args);

// A process and what it reads from its environment.
struct LaunchCommand {
  std::map<std::string, std::string> environment;
  std::vector<std::string> words;

  std::string text() const;  // to be pasted into a shell
};

// The same deployment with a server in each container: the flags of launch_commands(), of the server with
// those of the router left to the router.
struct ContainerCommands {
  LaunchCommand server;        // of each replica
  std::uint32_t replicas = 1;  // servers
  std::uint32_t gpus = 1;      // of each server
  LaunchCommand router;        // has no words where there is one replica; the URLs of all follow the last
  std::uint32_t gpus_of_host = 8;
  std::uint32_t nodes = 1;  // of each server
};
// All listen on kContainerPort. REQUIRES: whole servers that run SGLang, not --pd-disaggregation nor --fleet.
inline constexpr std::uint32_t kContainerPort = 30000;  // SGLang's own
ContainerCommands container_commands(const ServerArgs& args);

}  // namespace tpsim::launch
