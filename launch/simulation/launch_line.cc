#include "launch/simulation/launch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "launch/cli/flag_command.h"
#include "rank/config/catalogue_models.h"

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

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
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

// `module` with the flags of SGLang's server that are `given`, under the names of the release.
std::string command_of(const std::string& module, const std::map<std::string, std::string>& given,
                       bool newest) {
  static const std::vector<std::string> kFlags = flags_of_the_server();
  std::string line = "python3 -m " + module;
  for (const std::string& flag : kFlags) {
    const auto value = given.find(flag);
    if (value == given.end() || value->second == "false") continue;
    std::string name = flag;
    for (const auto& [old_name, new_name] : kNewNames) {
      if (newest && flag == old_name) name = new_name;
    }
    line += " " + name;
    if (value->second == "true") continue;  // a switch
    // Lists stand with blanks between their values.
    const bool list = flag.starts_with("--cuda-graph-bs");
    const std::string text = flag == "--model-path" ? model_of(value->second) : value->second;
    line += " " + (list ? text : shell_word(text));
  }
  return line;
}

// Of a prefill server, of a decode server, and of the router before so many of each, whose hosts are to be
// filled in.
std::vector<std::string> commands_of_pairs(const DisaggregationArgs& split, const std::string& environment,
                                           const std::map<std::string, std::string>& given, bool newest) {
  std::map<std::string, std::string> prefill, decode;
  std::string router = "python3 -m sglang_router.launch_router --pd-disaggregation";
  for (std::uint32_t i = 0; i < split.prefill; ++i) router += " --prefill http://PREFILL:30000 8998";
  for (std::uint32_t i = 0; i < split.decode; ++i) router += " --decode http://DECODE:30000";
  constexpr std::string_view kRouter = "--router-";
  for (const auto& [flag, value] : given) {
    const bool of_router = flag.starts_with(kRouter);
    if (of_router) router += " --" + flag.substr(kRouter.size()) + " " + value;
    if (flag == "--prefill-policy" || flag == "--decode-policy") router += " " + flag + " " + value;
    if (of_router) continue;
    decode[flag] = value;
    if (flag != "--num-reserved-decode-tokens") prefill[flag] = value;
  }
  const std::string server = "sglang.launch_server";
  std::string decodes = environment + command_of(server, decode, newest) + " --disaggregation-mode decode";
  if (!split.decode_args.empty()) decodes += " " + split.decode_args;  // the last of two counts
  return {environment + command_of(server, prefill, newest) + " --disaggregation-mode prefill", decodes,
          router};
}

}  // namespace

std::vector<std::string> launch_commands(const ServerArgs& args) {
  if (args.numeric()) return {};
  const bool newest = args.sglang_release.name == scheduler::default_release().name;
  std::map<std::string, std::string> given = args.given;
  add_backends(args.attention_backends, given);
  if (const auto attn_dp = given.find("--attn-dp-size"); attn_dp != given.end() && !newest) {
    if (attn_dp->second != "1") {
      given["--dp-size"] = attn_dp->second;
      given["--enable-dp-attention"] = "true";
    }
    given.erase("--attn-dp-size");
  }
  std::string environment;
  if (!args.parallel.pp_layer_partition.empty())
    environment += fmt::format("SGLANG_PP_LAYER_PARTITION={} ", shell_word(args.parallel.pp_layer_partition));
  if (const auto cache = given.find("--vlm-cache-size-mb"); cache != given.end())
    environment += fmt::format("SGLANG_VLM_CACHE_SIZE_MB={} ", cache->second);
  if (args.disaggregation.pd_disaggregation)
    return commands_of_pairs(args.disaggregation, environment, given, newest);
  const char* const module =
      args.router.given().empty() ? "sglang.launch_server" : "sglang_router.launch_server";
  return {environment + command_of(module, given, newest)};
}

}  // namespace tpsim::launch
