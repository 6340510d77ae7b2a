#include "launch/deployment/router.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/deployment/elastic.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// Of text, of which the router's tree is; 3.5 to 4.5 with the tokenizers of Llama 3 and Qwen.
constexpr std::uint64_t kCharactersPerToken = 4;

void say_what_is_idle(const ServerArgs& args, Notes& warnings) {
  if (const std::string_view idle = args.elastic.idle_router_flags(); !idle.empty())
    say(warnings, "{}: mean nothing where no replica fails, comes or goes", idle);
}

scheduler::RouterPolicy controller_policy(scheduler::LoadBalanceMethod method) {
  switch (method) {
    case scheduler::LoadBalanceMethod::kRoundRobin:
      return scheduler::RouterPolicy::kRoundRobin;
    case scheduler::LoadBalanceMethod::kTotalRequests:
      return scheduler::RouterPolicy::kTotalRequests;
    case scheduler::LoadBalanceMethod::kTotalTokens:
      return scheduler::RouterPolicy::kTotalTokens;
    case scheduler::LoadBalanceMethod::kFollowBootstrapRoom:
      break;
  }
  return scheduler::RouterPolicy::kRoundRobin;
}

void refuse_what_has_no_replicas(const ServerArgs& args, std::uint32_t replicas) {
  const auto refuse = [replicas](std::string_view what, std::string_view instead) {
    throw_user_error("--dp-size {}: {} of several replicas is not simulated; {}", replicas, what, instead);
  };
  if (args.numeric()) refuse("--executor numeric", "use --executor modeled, or compute one replica");
  if (args.parallel.pp_size > 1) refuse("--pp-size", "use --tp");
  if (!args.record_batches.empty()) refuse("--record-batches", "record one replica");
  if (!args.checkpoint_file().empty()) refuse("a checkpoint", "leave --checkpoint and --resume out");
}

}  // namespace

scheduler::RouterConfig router_config(const RouterArgs& router, std::uint32_t seed,
                                      const std::optional<scheduler::RouterPolicy>& policy) {
  scheduler::RouterConfig config;
  config.policy = policy.value_or(router.policy.value_or(config.policy));
  config.cache_threshold = router.cache_threshold.value_or(config.cache_threshold);
  config.balance_abs_threshold = router.balance_abs_threshold.value_or(config.balance_abs_threshold);
  config.balance_rel_threshold = router.balance_rel_threshold.value_or(config.balance_rel_threshold);
  config.eviction_interval = router.eviction_interval_secs.value_or(60);
  if (router.max_tree_size) config.max_tree_tokens = *router.max_tree_size / kCharactersPerToken;
  config.assignment_mode = router.assignment_mode.value_or(config.assignment_mode);
  config.bucket_adjust_interval = router.bucket_adjust_interval_secs.value_or(config.bucket_adjust_interval);
  config.characters_per_token = kCharactersPerToken;
  config.max_idle = router.max_idle_secs.value_or(config.max_idle);
  config.seed = seed;
  return config;
}

scheduler::RouterConfig router_config(const ServerArgs& args,
                                      const std::optional<scheduler::RouterPolicy>& policy) {
  return router_config(args.router, args.random_seed, policy);
}

RouterChoice resolve_router(const ServerArgs& args) {
  RouterChoice out;
  const RouterArgs& router = args.router;
  const std::uint32_t initial = out.replicas = args.parallel.replicas();
  const std::string_view elastic = args.elastic.given();
  if (args.disaggregation.pd_disaggregation) {  // launch/deployment/disaggregation.h
    if (!elastic.empty() && elastic != "--replica-slowdown")
      throw_user_error(
          "{}: with --pd-disaggregation is not simulated; use --dp-size, or of prefill and decode servers "
          "that come and go a --fleet with autoscale: beside their count",
          elastic);
    say_what_is_idle(args, out.warnings);
    return out;  // the rest is in launch/deployment/sides.cc
  }
  if (!elastic.empty() && router.policy == std::nullopt)
    throw_user_error(
        "{}: is of replicas behind SGLang's router: give --router-policy, and --dp-size without "
        "--enable-dp-attention",
        elastic);
  say_what_is_idle(args, out.warnings);
  std::vector<scheduler::AutoscaleConfig> autoscale;
  if (args.elastic.autoscale.most > 0) {
    scheduler::AutoscaleConfig& scaled = autoscale.emplace_back(args.elastic.autoscale);
    if (initial < scaled.least || initial > scaled.most)
      throw_user_error(
          "--autoscale {}..{}: --dp-size {} lies outside of it; begin with as many as it may have",
          scaled.least, scaled.most, initial);
    scaled.initial = initial;
    out.replicas = scaled.most;
  }
  if (out.replicas == 1) {
    if (!router.given().empty())
      throw_user_error("{}: needs replicas to choose from: --dp-size above 1, without --enable-dp-attention",
                       router.given());
    return out;
  }
  refuse_what_has_no_replicas(args, out.replicas);
  const bool routed = !router.given().empty();
  scheduler::RouterConfig& config = out.config = router_config(args, {});
  if (routed) {
    config.first_token_seconds = kFirstTokenSeconds;
    out.elastic = resolve_elastic(args, router, out.replicas, std::move(autoscale));
    out.startup_seconds = args.elastic.startup_seconds;
  } else {
    config.policy = controller_policy(args.parallel.load_balance);
    say(out.notes,
        "--dp-size {}: each scheduler has a tokenizer process of its own here, where one server has one for "
        "all; with --router-policy each replica has one, too",
        out.replicas);
  }
  return out;
}

void write_router(const RouterChoice& router, Rows& rows) {
  if (router.replicas == 1) return;
  rows["dp_size"] = std::to_string(router.replicas);
  write_router(router.config, rows);
  write_elastic(router.elastic, rows);
}

void write_router(const scheduler::RouterConfig& config, Rows& rows) {
  rows["router_policy"] = to_string(config.policy);
  if (config.policy == scheduler::RouterPolicy::kManual) {
    rows["router_assignment_mode"] = to_string(config.assignment_mode);
    return;
  }
  if (config.policy == scheduler::RouterPolicy::kBucket) {
    rows["router_bucket_adjust_interval_secs"] = format_real(config.bucket_adjust_interval);
  } else if (config.policy == scheduler::RouterPolicy::kCacheAware) {
    rows["router_cache_threshold"] = format_real(config.cache_threshold);
  } else {
    return;
  }
  rows["router_balance_abs_threshold"] = std::to_string(config.balance_abs_threshold);
  rows["router_balance_rel_threshold"] = format_real(config.balance_rel_threshold);
}

}  // namespace tpsim::launch
