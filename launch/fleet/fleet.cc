#include "launch/fleet/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/deployment/elastic.h"
#include "launch/deployment/resolve.h"
#include "launch/deployment/router.h"
#include "launch/flags/disaggregation_flags.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

void append_new(const std::vector<std::string>& words, std::vector<std::string>& to) {
  for (const std::string& word : words)
    if (std::ranges::find(to, word) == to.end()) to.push_back(word);
}

// A server's part in a fleet is said by the key that it stands under; its line may say it, too.
void take_mode(const std::string& key, std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--disaggregation-mode";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool joined = words[i].starts_with(std::string(kFlag) + "=");
    if (!joined && (words[i] != kFlag || i + 1 == words.size())) continue;
    const std::string mode = joined ? words[i].substr(kFlag.size() + 1) : words[i + 1];
    if (mode != key && !(key == "workers" && mode == "null"))
      throw_user_error("{} {}: stands under {}", kFlag, mode, key);
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                words.begin() + static_cast<std::ptrdiff_t>(i + (joined ? 1 : 2)));
    return;
  }
}

// All but the deployment.
FleetMember read_member(const ServerGroup& group, const ServerArgs& asked, bool loaded) {
  FleetMember member;
  member.name = group.name;
  member.count = group.slots();
  ServerArgs& args = member.args;
  std::vector<std::string> words = group.flags;
  take_mode(group.key, words);
  read_words("run", words, [&](FlagSet& flags) { declare_deployment_flags(flags, args); });
  if (!args.hardware.empty())
    throw_user_error("--hardware {}: stands beside the launch line, as hardware: {}", args.hardware,
                     args.hardware);
  args.hardware = group.hardware;
  static_cast<LoadArgs&>(args) = asked;
  static_cast<OutputArgs&>(args) = asked;
  if (args.parallel.replicas() > 1)
    throw_user_error(
        "--dp-size {}: such a server's own controller is not simulated in a fleet; give the group "
        "count: {} servers of --tp-size {}",
        args.parallel.replicas(), args.parallel.replicas() * member.count, args.tp_size);
  if (!args.router.given().empty()) throw_user_error("{}: belongs to the router's line", args.router.given());
  if (args.numeric())
    throw_user_error("--executor numeric: fleets are priced; compute one server without --fleet");
  args.disaggregation.pd_disaggregation = group.key != "workers";
  if (loaded)
    check_server_args(args, /*compare=*/false);
  else
    check_deployment_args(args);
  return member;
}

struct RouterLine {
  RouterArgs args;
  std::optional<scheduler::RouterPolicy> prefill_policy, decode_policy;
  bool split = false;
  bool igw = false;
};

// As the router reads its flags, without --router- before them or with it.
RouterLine read_router(const FleetFile& file, std::vector<std::string>& ignored) {
  RouterLine line;
  std::vector<std::string> words = file.router_flags;
  constexpr std::string_view kPrefix = "--router-";
  for (std::string& word : words)
    if (word.starts_with(kPrefix)) word = "--" + word.substr(kPrefix.size());
  if (!words.empty() && !words.front().starts_with('-'))
    throw_user_error("{}: is no flag; give the router's launch line, or its flags as in --policy cache_aware",
                     words.front());
  read_words("router", words, [&](FlagSet& flags) {
    flags.accept_flags_of(SglangProgram::kRouter, ignored);
    declare_router(flags, line.args, /*prefix=*/"");
    flags.add_value("--prefill-policy", "POLICY", "of prefill servers",
                    router_policy(line.prefill_policy, /*of_prefill=*/true));
    flags.add_value("--decode-policy", "POLICY", "of decode servers", router_policy(line.decode_policy));
    flags.add_switch("--enable-igw", "several models", line.igw);
    flags.add_switch("--pd-disaggregation", "prefill and decode are apart", line.split);
  });
  // Such a router hears of its servers by POST /workers alone.
  if (const auto urls = std::ranges::find(ignored, "--worker-urls"); line.igw && urls != ignored.end())
    *urls += " (which a router with --enable-igw ignores, too)";
  const bool split = file.has("prefill");
  if (line.split && !split)
    throw_user_error("--pd-disaggregation: needs servers under prefill and decode; these are workers");
  if (!split && (line.prefill_policy || line.decode_policy))
    throw_user_error("{}: is of servers under prefill and decode; these are workers",
                     line.prefill_policy ? "--prefill-policy" : "--decode-policy");
  return line;
}

// As SGLang's router knows it.
std::string served_name(const ServerGroup& group, const ServerArgs& args) {
  constexpr std::string_view kFlag = "--served-model-name";
  std::string name = args.model_path;
  for (std::size_t i = 0; i < group.flags.size(); ++i) {
    const std::string& word = group.flags[i];
    if (word == kFlag && i + 1 < group.flags.size()) name = group.flags[i + 1];
    if (word.starts_with(std::string(kFlag) + "=")) name = word.substr(kFlag.size() + 1);
  }
  return name;
}

// The models of a router that tells them apart.
void name_models(const FleetFile& file, Fleet& fleet) {
  std::erase(fleet.ignored_flags, "--served-model-name");
  for (std::size_t i = 0; i < fleet.members.size(); ++i) {
    const std::string name = served_name(file.groups[i], fleet.members[i].args);
    auto model = std::ranges::find(fleet.models, name, &FleetModel::name);
    if (model == fleet.models.end()) model = fleet.models.insert(model, {name});
    model->share += file.groups[i].share;
    fleet.members[i].model = static_cast<std::size_t>(model - fleet.models.begin());
  }
}

// Model and vocabulary decide what a request's tokens are; how its weights are stored does not.
bool same_model(const rank::ModelConfig& a, const rank::ModelConfig& b) {
  return a.architecture == b.architecture && a.num_layers == b.num_layers && a.vocab_size == b.vocab_size &&
         a.hidden_size == b.hidden_size;
}

// Servers that prefill become the first member, with those that decode in its deployment.
template <typename InFile>
void resolve_sides(const RouterLine& router, const InFile& in_file, const FleetFile& file,
                   const ServerArgs& asked, const std::vector<scheduler::AutoscaleConfig>& autoscale,
                   Fleet& fleet) {
  if (file.groups.front().key == "decode") std::swap(fleet.members[0], fleet.members[1]);
  FleetMember& prefill = fleet.members[0];
  FleetMember& decode = fleet.members[1];
  DisaggregationArgs& pair = prefill.args.disaggregation;
  pair.prefill = prefill.count;
  pair.decode = decode.count;
  pair.num_reserved_decode_tokens = decode.args.disaggregation.num_reserved_decode_tokens;
  pair.prefill_policy = router.prefill_policy ? router.prefill_policy : router.args.policy;
  pair.decode_policy = router.decode_policy ? router.decode_policy : router.args.policy;
  prefill.args.router = router.args;
  in_file(file.groups.front().line, "prefill and decode",
          [&] { prefill.deployment = resolve_split(prefill.args, decode.args); });
  decode.deployment = *prefill.deployment.disaggregation.decode_side;
  prefill.deployment.router.elastic = resolve_elastic(asked, router.args, fleet.servers(), autoscale);
  prefill.deployment.router.startup_seconds = asked.elastic.startup_seconds;
}

constexpr std::string_view kLimit = "--max-concurrent-requests";

void refuse_what_is_not_elastic(std::string_view flag, const Fleet& fleet, bool split,
                                const FleetFile& file) {
  if (split && flag.starts_with("--replica-failure"))
    throw_user_error("{}: with prefill and decode apart is not simulated; give {} workers", flag, file.path);
  if (fleet.servers() == 1)
    throw_user_error("{}: needs several servers behind a router; {} has one", flag, file.path);
  if (flag == kLimit) return;
  for (const std::string& ignored : fleet.ignored_flags) {
    for (const std::string_view of_failing : {"--retry-", "--cb-", "--health-", "--disable-retries",
                                              "--disable-circuit-breaker", "--disable-health-check"}) {
      if (ignored.starts_with(of_failing))
        throw_user_error("{}: {}: is not read where replicas fail; give --router-{} beside --fleet",
                         file.path, ignored, ignored.substr(2));
    }
  }
}

// The groups whose servers come and go, by the rule of the command line; those that decode last, as replicas
// are numbered.
std::vector<scheduler::AutoscaleConfig> scaled_groups(const FleetFile& file, const ServerArgs& asked) {
  std::vector<scheduler::AutoscaleConfig> scaled;
  std::uint32_t first = 0;
  std::vector<ServerGroup> groups = file.groups;
  std::ranges::stable_sort(groups, {}, [](const ServerGroup& group) { return group.key == "decode"; });
  for (const ServerGroup& group : groups) {
    if (group.scales()) {
      scheduler::AutoscaleConfig& each = scaled.emplace_back(asked.elastic.autoscale);
      each.name = group.name;
      each.first = first;
      each.least = group.least;
      each.most = group.most;
      each.initial = group.count;
    }
    first += group.slots();
  }
  return scaled;
}

}  // namespace

std::uint32_t Fleet::servers() const {
  return std::accumulate(members.begin(), members.end(), 0U,
                         [](std::uint32_t sum, const FleetMember& member) { return sum + member.count; });
}

const FleetMember& Fleet::member_of(std::uint32_t replica) const {
  for (const FleetMember& member : members) {
    if (replica < member.count) return member;
    replica -= member.count;
  }
  return members.back();
}

std::vector<std::uint32_t> Fleet::replicas_of(std::size_t model) const {
  std::vector<std::uint32_t> replicas;
  for (std::uint32_t i = 0; i < servers(); ++i)
    if (member_of(i).model == model) replicas.push_back(i);
  return replicas;
}

Fleet resolve_fleet(const FleetFile& file, const ServerArgs& asked, bool loaded) {
  Fleet fleet;
  fleet.path = file.path;
  const auto in_file = [&file](std::uint64_t line, const std::string& where, const auto& act) {
    try {
      act();
    } catch (const UserError& error) {
      throw_user_error("{}:{}: {}: {}", file.path, line, where, error.what());
    }
  };
  RouterLine router;
  if (file.router_line > 0)
    in_file(file.router_line, "router", [&] { router = read_router(file, fleet.ignored_flags); });
  const bool split = file.has("prefill");
  for (const ServerGroup& group : file.groups) {
    if (split && std::ranges::count(file.groups, group.key, &ServerGroup::key) > 1)
      throw_user_error("{}:{}: {}: one group of such servers is simulated; give it a count", file.path,
                       group.line, group.key);
    in_file(group.line, group.name, [&] {
      fleet.members.push_back(read_member(group, asked, loaded));
      FleetMember& member = fleet.members.back();
      append_new(member.args.ignored_flags, fleet.ignored_flags);
      if (!split) member.deployment = std::move(resolve_deployments(member.args, /*compare=*/false).at(0));
    });
  }
  if (const std::string_view idle = asked.elastic.idle_router_flags(); !idle.empty())
    append_new({std::string(idle)}, fleet.ignored_flags);
  const std::vector<scheduler::AutoscaleConfig> autoscale = scaled_groups(file, asked);
  if (!loaded && !autoscale.empty())
    throw_user_error("{}: autoscale: servers of `tpsim serve` do not come and go; leave it out", file.path);
  if (asked.elastic.autoscale.most > 0)
    throw_user_error(
        "--autoscale: with --fleet it stands in the file, as autoscale: {}..{} beside the count of the "
        "servers that come and go",
        asked.elastic.autoscale.least, asked.elastic.autoscale.most);
  check_autoscale(asked.elastic, !autoscale.empty(), fmt::format("autoscale in {}", file.path),
                  asked.goodput.any());
  const std::string_view elastic = !asked.elastic.given().empty()        ? asked.elastic.given()
                                   : !autoscale.empty()                  ? "autoscale"
                                   : router.args.max_concurrent_requests ? kLimit
                                                                         : "";
  if (!elastic.empty()) refuse_what_is_not_elastic(elastic, fleet, split, file);
  if (router.igw && split)
    throw_user_error("{}:{}: router: --enable-igw: of servers under prefill and decode is not simulated",
                     file.path, file.router_line);
  if (router.igw) name_models(file, fleet);
  if (split) {
    resolve_sides(router, in_file, file, asked, autoscale, fleet);
    return fleet;
  }
  scheduler::RouterConfig config = router_config(router.args, asked.random_seed, {});
  config.first_token_seconds = kFirstTokenSeconds;
  for (std::size_t i = 0; i < fleet.members.size(); ++i) {
    Deployment& deployment = fleet.members[i].deployment;
    const auto alike = std::ranges::find(fleet.members, fleet.members[i].model, &FleetMember::model);
    const rank::ModelConfig& first = alike->deployment.model;
    if (!same_model(deployment.model, first))
      throw_user_error("{}:{}: {}: serves {}, the servers before it {}; {}", file.path, file.groups[i].line,
                       file.groups[i].name, deployment.model.name, first.name,
                       router.igw ? "give it a --served-model-name of its own"
                                  : "a router of several models has --enable-igw in its line");
    if (file.groups[i].share > 0 && fleet.models.size() < 2)
      throw_user_error("{}:{}: share: is of several models behind a router with --enable-igw; leave it out",
                       file.path, file.groups[i].line);
    deployment.router.replicas = fleet.servers();  // each is one of so many behind this router
    deployment.router.config = config;
    deployment.router.elastic = resolve_elastic(asked, router.args, fleet.servers(), autoscale);
    deployment.router.startup_seconds = asked.elastic.startup_seconds;
  }
  return fleet;
}

}  // namespace tpsim::launch
