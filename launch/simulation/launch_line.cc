#include "launch/simulation/launch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "launch/cli/flag_command.h"
#include "launch/cli/shell_line.h"
#include "launch/deployment/nodes.h"
#include "launch/deployment/sides.h"
#include "rank/config/catalogue_models.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

// Flags of a deployment here that SGLang's server does not have: what it stands on, prices, and what a real
// server does by itself.
constexpr std::array<std::string_view, 26> kOnlyHere = {"--config",
                                                        "--hardware",
                                                        "--executor",
                                                        "--rank-slowdown",
                                                        "--sglang-version",
                                                        "--expert-distribution",
                                                        "--pass-gap-ms",
                                                        "--kernel-launch-us",
                                                        "--compile-seconds",
                                                        "--compile-decode-seconds",
                                                        "--served-before",
                                                        "--launch-queue",
                                                        "--vlm-cache-size-mb",
                                                        "--speculative-accept-rates",
                                                        "--speculative-accept-lengths",
                                                        "--random-seed",
                                                        "--log-level",
                                                        "--attention-backends",
                                                        "--pd-disaggregation",
                                                        "--prefill",
                                                        "--decode",
                                                        "--decode-args",
                                                        "--prefill-policy",
                                                        "--decode-policy",
                                                        "--kv-link",
                                                        "--kv-link-bandwidth"};
// Others that stand behind the server's in declare_deployment_flags().
constexpr std::array<std::string_view, 2> kOutput = {"--no-progress", "--check-invariants"};

// Names that SGLang 0.5.23 has for flags of releases before.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNewNames = {
    {{"--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"},
     {"--cuda-graph-bs", "--cuda-graph-bs-decode"},
     {"--nsa-prefill-backend", "--dsa-prefill-backend"},
     {"--nsa-decode-backend", "--dsa-decode-backend"}}};

bool is_remote(const std::string& model) {
  if (!rank::catalogue_config(rank::catalogue_key(model))) return false;
  return rank::load_model_config(model).facts.remote_code;
}

// In the order of the help.
std::vector<std::string> flags_of_the_server() {
  ServerArgs args;
  std::vector<std::string> names;
  read_words("run", {}, [&](FlagSet& flags) {
    declare_deployment_flags(flags, args);
    names = flags.names();
  });
  std::erase_if(names, [](const std::string& name) {
    return std::ranges::find(kOnlyHere, name) != kOnlyHere.end() ||
           std::ranges::find(kOutput, name) != kOutput.end();
  });
  names.emplace_back("--stream-interval");  // which stands with the load here
  return names;
}

std::string model_of(const std::string& given) {
  std::error_code error;
  return std::filesystem::exists(given, error) ? given : rank::hub_id(given);
}

void add_backends(const std::vector<BackendPair>& pairs, std::map<std::string, std::string>& given) {
  if (pairs.size() != 1) return;
  const BackendPair& pair = pairs.front();
  if (pair.prefill == pair.decode) {
    given["--attention-backend"] = pair.prefill;
  } else {
    given["--prefill-attention-backend"] = pair.prefill;
    given["--decode-attention-backend"] = pair.decode;
  }
}

// The server's own command, or with `routed` its router's where there is one; of the flags `given`.
LaunchCommand server_command(const ServerArgs& args, std::map<std::string, std::string> given, bool routed) {
  static const std::vector<std::string> kFlags = flags_of_the_server();
  const bool renamed = args.sglang_release.rules.renames_flags;
  given.erase("--nnodes");  // several_nodes() says it, of each node
  add_backends(args.attention_backends, given);
  if (const auto attn_dp = given.find("--attn-dp-size"); attn_dp != given.end() && !renamed) {
    if (attn_dp->second != "1") {
      given["--dp-size"] = attn_dp->second;
      given["--enable-dp-attention"] = "true";
    }
    given.erase("--attn-dp-size");
  }
  LaunchCommand command;
  if (!args.parallel.pp_layer_partition.empty())
    command.environment["SGLANG_PP_LAYER_PARTITION"] = args.parallel.pp_layer_partition;
  if (const auto cache = given.find("--vlm-cache-size-mb"); cache != given.end())
    command.environment["SGLANG_VLM_CACHE_SIZE_MB"] = cache->second;
  command.words = {
      "python3", "-m",
      routed && !args.router.given().empty() ? "sglang_router.launch_server" : "sglang.launch_server"};
  for (const std::string& flag : kFlags) {
    const auto value = given.find(flag);
    if (value == given.end() || value->second == "false") continue;
    std::string name = flag;
    for (const auto& [old_name, new_name] : kNewNames) {
      if (renamed && flag == old_name) name = new_name;
    }
    command.words.push_back(name);
    if (value->second == "true") continue;  // a switch
    if (flag.starts_with("--cuda-graph-bs")) {
      // Lists stand with blanks between their values.
      std::istringstream sizes(value->second);
      std::string size;
      while (sizes >> size) command.words.push_back(size);
    } else {
      command.words.push_back(flag == "--model-path" ? model_of(value->second) : value->second);
    }
    if (flag == "--model-path" && is_remote(value->second)) command.words.emplace_back("--trust-remote-code");
  }
  return command;
}

// Of the flags `given`, those of each of several servers behind a router of its own.
std::map<std::string, std::string> without_router(std::map<std::string, std::string> given) {
  std::erase_if(given, [](const auto& flag) {
    return flag.first == "--dp-size" || flag.first == "--load-balance-method" ||
           flag.first.starts_with("--router-");
  });
  return given;
}

// The router's own flags, of `given`.
std::vector<std::string> router_flags(const std::map<std::string, std::string>& given) {
  std::vector<std::string> words;
  for (const auto& [flag, value] : given) {
    if (flag.starts_with("--router-")) {
      words.push_back("--" + flag.substr(9));
      if (value != "true") words.push_back(value);  // of a switch
    }
    if (flag == "--prefill-policy" || flag == "--decode-policy") words.insert(words.end(), {flag, value});
  }
  return words;
}

// GPUs that stand in one host, whose commands are printed together; a node of more is several trays.
std::uint32_t gpus_of_host(const ServerArgs& args) {
  return std::min(8U, rank::gpus_of_node(rank::load_hardware(args.hardware)));
}

// `command` for each of a server's nodes, host`first` and those behind it.
std::vector<std::string> on_nodes(const std::string& command, std::uint32_t nodes, std::uint32_t first) {
  constexpr std::uint32_t kPort = 20000;  // that the nodes meet on
  std::vector<std::string> out;
  for (std::uint32_t i = 0; i < nodes; ++i)
    out.push_back(fmt::format("{} --nnodes {} --node-rank {} --dist-init-addr host{}:{}", command, nodes, i,
                              first, kPort));
  return out;
}

// Servers on host1, host2 …, one after the other.
class Hosts {
 public:
  explicit Hosts(std::uint32_t gpus) : gpus_(gpus) {}

  struct Place {
    std::string url;
    std::uint32_t bootstrap_port = 0;  // of a prefill server
  };
  // A server that `command` starts, on so many GPUs; of several nodes, on hosts of its own.
  Place add(const std::string& command, std::uint32_t gpus, bool bootstraps, std::uint32_t nodes = 1) {
    if (taken_ > 0 && (nodes > 1 || taken_ + gpus > gpus_)) {
      ++host_;
      taken_ = servers_ = 0;
    }
    if (nodes > 1) {
      const Place place{fmt::format("http://host{}:30000", host_), 8998};
      for (const std::string& line : on_nodes(command, nodes, host_)) {
        commands_.push_back(fmt::format("{} --host host{} --port 30000", line, host_++));
        if (bootstraps)
          commands_.back() += fmt::format(" --disaggregation-bootstrap-port {}", place.bootstrap_port);
      }
      return place;
    }
    const std::string name = fmt::format("host{}", host_);
    const std::uint32_t port = 30000 + servers_;
    const Place place{fmt::format("http://{}:{}", name, port), 8998 + servers_};
    commands_.push_back(fmt::format("{} --base-gpu-id {} --host {} --port {}", command, taken_, name, port));
    if (bootstraps)
      commands_.back() += fmt::format(" --disaggregation-bootstrap-port {}", place.bootstrap_port);
    taken_ += gpus;
    ++servers_;
    return place;
  }
  const std::vector<std::string>& commands() const { return commands_; }

 private:
  const std::uint32_t gpus_;
  std::uint32_t host_ = 1, taken_ = 0, servers_ = 0;
  std::vector<std::string> commands_;
};

// --decode-args behind a server's flags, whose parser takes the last value of each.
std::string decode_words(const ServerArgs& args) {
  const bool renamed = args.sglang_release.rules.renames_flags;
  std::istringstream text(args.disaggregation.decode_args);
  std::string out, word;
  while (text >> word) {
    for (const auto& [old_name, new_name] : kNewNames) {
      if (renamed && word == old_name) word = new_name;
    }
    out += " " + shell_word(word);
  }
  return out;
}

}  // namespace

std::vector<std::string> launch_commands(const ServerArgs& args) {
  if (args.numeric() || !args.router.fleet.empty()) return {};
  const bool pairs = args.disaggregation.pd_disaggregation;
  const std::uint32_t gpus = args.tp_size * args.parallel.pp_size;
  const proto::HardwareProfile hardware = rank::load_hardware(args.hardware);
  const std::uint32_t nodes = nodes_of(args, hardware);
  if (!pairs && nodes > 1) return on_nodes(server_command(args, args.given, true).text(), nodes, 1);
  const std::uint32_t host = pairs || args.parallel.replicas() > 1 ? gpus_of_host(args) : 0;
  if (!pairs && (args.parallel.replicas() == 1 || args.parallel.replicas() * gpus <= host || gpus > host))
    return {server_command(args, args.given, true).text()};
  // A server each, and the router that knows them all.
  std::map<std::string, std::string> given = without_router(args.given);
  const std::string server = server_command(args, given, false).text();
  // Of decode servers.
  given.erase("--num-reserved-decode-tokens");
  given.erase("--disaggregation-decode-enable-radix-cache");
  const std::string prefill = server_command(args, given, false).text();
  Hosts hosts(host);
  std::string urls;
  if (pairs) {
    const DisaggregationArgs& split = args.disaggregation;
    for (std::uint32_t i = 0; i < split.prefill; ++i) {
      const Hosts::Place place = hosts.add(prefill + " --disaggregation-mode prefill", gpus, true, nodes);
      urls += fmt::format(" --prefill {} {}", place.url, place.bootstrap_port);
    }
    const ServerArgs decode = decode_server_args(args);
    for (std::uint32_t i = 0; i < split.decode; ++i) {
      const Hosts::Place place =
          hosts.add(fmt::format("{} --disaggregation-mode decode{}", server, decode_words(args)),
                    decode.tp_size * decode.parallel.pp_size, false, nodes_of(decode, hardware));
      urls += " --decode " + place.url;
    }
  } else {
    for (std::uint32_t i = 0; i < args.parallel.replicas(); ++i)
      urls += " " + hosts.add(server, gpus, false).url;
  }
  std::string router = "python3 -m sglang_router.launch_router";
  router += (pairs ? " --pd-disaggregation" : " --worker-urls") + urls;
  if (const std::vector<std::string> flags = router_flags(args.given); !flags.empty())
    router += " " + shell_command(flags);
  std::vector<std::string> commands = hosts.commands();
  commands.push_back(std::move(router));
  return commands;
}

std::string LaunchCommand::text() const {
  std::string text;
  for (const auto& [name, value] : environment) text += fmt::format("{}={} ", name, shell_word(value));
  return text + shell_command(words);
}

ContainerCommands container_commands(const ServerArgs& args) {
  const std::vector<std::string> listens = {"--host", "0.0.0.0", "--port", std::to_string(kContainerPort)};
  ContainerCommands out;
  out.replicas = args.parallel.replicas();
  out.gpus = args.tp_size * args.parallel.pp_size;
  out.gpus_of_host = gpus_of_host(args);
  out.nodes = nodes_of(args, rank::load_hardware(args.hardware));
  const bool routed = out.replicas > 1;
  out.server = server_command(args, routed ? without_router(args.given) : args.given, false);
  out.server.words.insert(out.server.words.end(), listens.begin(), listens.end());
  if (routed) {
    out.router.words = {"python3", "-m", "sglang_router.launch_router"};
    out.router.words.insert(out.router.words.end(), listens.begin(), listens.end());
    const std::vector<std::string> flags = router_flags(args.given);
    out.router.words.insert(out.router.words.end(), flags.begin(), flags.end());
    out.router.words.emplace_back("--worker-urls");
  }
  return out;
}

}  // namespace tpsim::launch
