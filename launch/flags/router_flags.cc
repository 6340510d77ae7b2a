#include "launch/flags/router_flags.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::array<Named<scheduler::RouterPolicy>, 8> kPolicies = {{
    {"random", scheduler::RouterPolicy::kRandom},
    {"round_robin", scheduler::RouterPolicy::kRoundRobin},
    {"power_of_two", scheduler::RouterPolicy::kPowerOfTwo},
    {"cache_aware", scheduler::RouterPolicy::kCacheAware},
    {"manual", scheduler::RouterPolicy::kManual},
    {"bucket", scheduler::RouterPolicy::kBucket},
    {"total_requests", scheduler::RouterPolicy::kTotalRequests},
    {"total_tokens", scheduler::RouterPolicy::kTotalTokens},
}};
constexpr std::array<Named<scheduler::AssignmentMode>, 3> kAssignments = {{
    {"random", scheduler::AssignmentMode::kRandom},
    {"min_load", scheduler::AssignmentMode::kMinLoad},
    {"min_group", scheduler::AssignmentMode::kMinGroup},
}};

}  // namespace

FlagSet::ReadValue router_policy(std::optional<scheduler::RouterPolicy>& target, bool of_prefill) {
  return [&target, of_prefill](std::string_view flag, const std::string& value) {
    if (value == "bucket" && !of_prefill)
      throw_user_error("{} bucket: is a policy of servers that prefill alone; use --prefill-policy bucket",
                       flag);
    for (const std::string_view known : {"consistent_hashing", "prefix_hash"}) {
      if (value == known)
        throw_user_error(
            "{} {}: is not simulated; use random, round_robin, power_of_two, cache_aware or manual", flag,
            value);
    }
    std::vector<std::string_view> words = {"random", "round_robin", "power_of_two", "cache_aware", "manual"};
    if (of_prefill) words.push_back("bucket");
    check_word(flag, value, words);
    choice(kPolicies, target)(flag, value);
  };
}

void declare_router(FlagSet& flags, RouterArgs& args, const std::string& prefix) {
  const std::string dashes = "--" + prefix;
  flags.add_value(dashes + "policy", "POLICY",
                  "of SGLang's router before --dp-size replicas: random, round_robin, power_of_two, "
                  "cache_aware or manual "
                  "(a conversation stays where its first request went) "
                  "(default: no router, one server's --load-balance-method)",
                  router_policy(args.policy));
  flags.add_value(dashes + "cache-threshold", "SHARE",
                  "of a prompt: cache_aware sends it where more than this was sent before (default 0.3)",
                  real(args.cache_threshold, 0, true, 1, true));
  flags.add_value(
      dashes + "balance-abs-threshold", "N",
      "cache_aware: requests in flight by which replicas may differ; beyond it the least busy one gets the "
      "next (default 64); bucket: characters of late",
      count(args.balance_abs_threshold, 0));
  flags.add_value(dashes + "balance-rel-threshold", "RATIO",
                  "likewise: the busiest to the least busy (default 1.5)",
                  real(args.balance_rel_threshold, 0, true, 1e6, true));
  flags.add_value(dashes + "eviction-interval-secs", "S",
                  "seconds between two evictions from what the router remembers of prompts (cache_aware) or "
                  "conversations (manual), 0: none (default 60)",
                  count(args.eviction_interval_secs, 0));
  flags.add_value(dashes + "assignment-mode", "MODE",
                  "manual: where a new conversation goes, random, or the replica with the fewest requests "
                  "(min_load) or conversations (min_group) in flight (default random)",
                  choice(kAssignments, args.assignment_mode));
  flags.add_value(dashes + "max-idle-secs", "S",
                  "manual: idle seconds after which an eviction forgets a conversation (default 14400)",
                  count(args.max_idle_secs, 0));
  flags.add_value(dashes + "bucket-adjust-interval-secs", "S",
                  "bucket: seconds between two looks at its bounds, and of what counts as late (default 5)",
                  count(args.bucket_adjust_interval_secs, 1));
  flags.add_value(
      dashes + "max-tree-size", "CHARACTERS",
      "that an eviction leaves each replica in that tree, four of them a token (default 67108864)",
      count(args.max_tree_size, 1));
  flags.add_value(
      dashes + "max-concurrent-requests", "N",
      "that the router lets through at a time; others wait, or end with an error (default -1: any "
      "number)",
      [&args](std::string_view flag, const std::string& value) {
        if (value == "-1")
          args.max_concurrent_requests.reset();
        else
          count(args.max_concurrent_requests, 1, UINT32_MAX)(flag, value);
      });
  flags.add_value(dashes + "rate-limit-tokens-per-second", "N",
                  "more requests a second that it lets through (default: --max-concurrent-requests)",
                  count(args.rate_limit_tokens_per_second, 0));
  flags.add_value(dashes + "queue-size", "N", "0: no request waits to be let through (default 100)",
                  count(args.queue_size, 0));
  flags.add_value(dashes + "queue-timeout-secs", "S", "that one waits at the most (default 60)",
                  count(args.queue_timeout_secs, 1));
}

void declare_fleet(FlagSet& flags, RouterArgs& args) {
  flags.add_value("--fleet", "FILE",
                  "launch lines of servers, unequal ones perhaps, and of the router before them, with their "
                  "counts (YAML or JSON: launch/fleet/README.md); compare takes several, separated by commas",
                  text(args.fleet));
}

std::string_view RouterArgs::given() const {
  if (policy) return "--router-policy";
  if (cache_threshold) return "--router-cache-threshold";
  if (balance_abs_threshold) return "--router-balance-abs-threshold";
  if (balance_rel_threshold) return "--router-balance-rel-threshold";
  if (eviction_interval_secs) return "--router-eviction-interval-secs";
  if (assignment_mode) return "--router-assignment-mode";
  if (max_idle_secs) return "--router-max-idle-secs";
  if (bucket_adjust_interval_secs) return "--router-bucket-adjust-interval-secs";
  if (max_concurrent_requests) return "--router-max-concurrent-requests";
  if (rate_limit_tokens_per_second) return "--router-rate-limit-tokens-per-second";
  if (queue_size) return "--router-queue-size";
  if (queue_timeout_secs) return "--router-queue-timeout-secs";
  return max_tree_size ? "--router-max-tree-size" : "";
}

std::string_view to_string(scheduler::RouterPolicy policy) { return name_of(kPolicies, policy); }
std::string_view to_string(scheduler::AssignmentMode mode) { return name_of(kAssignments, mode); }

}  // namespace tpsim::launch
