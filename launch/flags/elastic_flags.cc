#include "launch/flags/elastic_flags.h"

#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

constexpr double kMostSeconds = 1e9;
constexpr std::uint32_t kMostReplicas = 1'000'000;

// The two sides of `between` in `text`; nothing where it is not there.
std::optional<std::pair<std::string, std::string>> halves(const std::string& text, std::string_view between) {
  const std::size_t at = text.find(between);
  if (at == std::string::npos) return std::nullopt;
  return std::pair(text.substr(0, at), text.substr(at + between.size()));
}

// "2@120..300": replica 2, from second 120 to 300; "2@120": for ever.
struct Span {
  std::uint32_t replica = 0;
  double from = 0, until = std::numeric_limits<double>::infinity();
};
Span parse_span(std::string_view flag, const std::string& value, std::string_view example) {
  const auto parts = halves(value, "@");
  if (!parts)
    throw_user_error("{} {}: must be REPLICA@FROM..UNTIL in seconds, as in {}", flag, value, example);
  Span span;
  span.replica = static_cast<std::uint32_t>(parse_count(flag, parts->first, 0, kMostReplicas));
  const auto times = halves(parts->second, "..");
  span.from = parse_real(flag, times ? times->first : parts->second, 0, true, kMostSeconds, true);
  if (times) span.until = parse_real(flag, times->second, 0, true, kMostSeconds, true);
  if (span.until <= span.from)
    throw_user_error("{} {}: ends before it begins; give FROM..UNTIL in seconds, as in {}", flag, value,
                     example);
  return span;
}

FlagSet::ReadValue failures(std::vector<scheduler::ReplicaFailure>& out) {
  return [&out](std::string_view flag, const std::string& value) {
    out.clear();
    for (const std::string& each : split_list(value, ',')) {
      const Span span = parse_span(flag, each, "2@120..300, or 2@120 for good");
      out.push_back({span.replica, span.from, span.until});
    }
  };
}

FlagSet::ReadValue slowdowns(std::vector<scheduler::ReplicaSlowdown>& out) {
  return [&out](std::string_view flag, const std::string& value) {
    constexpr std::string_view kExample = "1@60..90:x3";
    out.clear();
    for (const std::string& each : split_list(value, ',')) {
      const auto parts = halves(each, ":x");
      if (!parts)
        throw_user_error("{} {}: must be REPLICA@FROM..UNTIL:xFACTOR, as in {}", flag, each, kExample);
      const Span span = parse_span(flag, parts->first, kExample);
      out.push_back(
          {span.replica, span.from, span.until, parse_real(flag, parts->second, 1, true, 1e6, true)});
    }
  };
}

FlagSet::ReadValue target(ElasticArgs& args) {
  return [&args](std::string_view flag, const std::string& value) {
    const auto parts = halves(value, ":");
    scheduler::AutoscaleConfig& out = args.autoscale;
    if (parts && parts->first == "queue") {
      out.metric = scheduler::AutoscaleMetric::kQueue;
      out.target = parse_real(flag, parts->second, 0, false, 1e9, true);
    } else if (parts && parts->first == "kv") {
      out.metric = scheduler::AutoscaleMetric::kKv;
      out.target = parse_real(flag, parts->second, 0, false, 1, true);
    } else if (parts && parts->first == "slo") {
      out.metric = scheduler::AutoscaleMetric::kSlo;
      out.target = 1;
      out.share = parse_real(flag, parts->second, 0, false, 1, true);
    } else {
      throw_user_error(
          "{} {}: must be queue:N, requests of a replica, kv:SHARE of its KV pool, or slo:SHARE of requests "
          "within --slo, as in queue:8, kv:0.8 or slo:0.99",
          flag, value);
    }
    args.autoscale_target = true;
  };
}

FlagSet::ReadValue milliseconds(double& seconds) {
  return [&seconds](std::string_view flag, const std::string& value) {
    seconds = static_cast<double>(parse_count(flag, value, 1, 1'000'000'000)) * 1e-3;
  };
}

}  // namespace

void declare_elastic(FlagSet& flags, ElasticArgs& args) {
  scheduler::ElasticConfig& config = args.config;
  flags.add_value(
      "--replica-failure", "R@FROM..UNTIL",
      "replica R is dead from second FROM on and starts again at UNTIL; without ..UNTIL never. A list, "
      "separated by commas (needs --router-policy, or --fleet, as the flags below)",
      failures(config.failures));
  flags.add_value(
      "--replica-failure-mtbf", "S",
      "seconds that a replica lives on average before it dies and starts again, drawn by --random-seed",
      real(config.mtbf, 1, true, kMostSeconds, true));
  flags.add_value("--replica-slowdown", "R@FROM..UNTIL:xFACTOR",
                  "passes of replica R take FACTOR times as long from second FROM to UNTIL; a list likewise",
                  slowdowns(config.slowdowns));
  flags.add_value(
      "--replica-startup-seconds", "S",
      "from a replica's start until it serves (default: 42 s, its weights at 2 GB/s a GPU, and the "
      "capture of its graphs)",
      real(args.startup_seconds, 0, true, kMostSeconds, true));
  flags.add_value(
      "--autoscale", "MIN..MAX",
      "replicas, as Kubernetes' horizontal pod autoscaler would have them; --dp-size of them at the "
      "beginning (of a --fleet: autoscale beside count in the file)",
      [&args](std::string_view flag, const std::string& value) {
        std::tie(args.autoscale.least, args.autoscale.most) = parse_replica_range(flag, value);
      });
  flags.add_value("--autoscale-target", "METRIC:VALUE",
                  "of a replica on average: queue:8 requests, or kv:0.8 of its KV pool; or slo:0.99 of the "
                  "requests that ended lately within --slo",
                  target(args));
  flags.add_value("--autoscale-interval-secs", "S", "between two looks at it (default 15)",
                  real(args.autoscale.interval, 0.1, true, kMostSeconds, true));
  flags.add_value("--autoscale-scale-down-window-secs", "S",
                  "whose largest number of replicas counts before some are taken away (default 300)",
                  real(args.autoscale.scale_down_window, 0, true, kMostSeconds, true));
  flags.add_value("--autoscale-slo-window-secs", "S", "in which requests ended lately (default 60)",
                  real(args.autoscale.window, 0.1, true, kMostSeconds, true));
  const auto of_router = [&](const std::string& name, const char* unit, const char* help,
                             FlagSet::ReadValue read) {
    flags.add_value(name, unit, help,
                    [&args, read = std::move(read)](std::string_view flag, const std::string& value) {
                      args.router_flag = "--router-retry-*, --router-cb-* and --router-health-*";
                      read(flag, value);
                    });
  };
  of_router("--router-retry-max-retries", "N", "attempts in all that a request has (default 5)",
            count(config.retry.max_retries, 1, 1000));
  of_router("--router-retry-initial-backoff-ms", "MS", "before the second attempt (default 50)",
            milliseconds(config.retry.initial_backoff));
  of_router("--router-retry-max-backoff-ms", "MS", "before any attempt at most (default 30000)",
            milliseconds(config.retry.max_backoff));
  of_router("--router-retry-backoff-multiplier", "FACTOR", "from one pause to the next (default 1.5)",
            real(config.retry.backoff_multiplier, 1, true, 1000, true));
  of_router("--router-retry-jitter-factor", "SHARE", "of a pause, drawn (default 0.2)",
            real(config.retry.jitter_factor, 0, true, 1, true));
  flags.add_switch("--router-disable-retries", "a request has one attempt", args.disable_retries);
  of_router("--router-cb-failure-threshold", "N",
            "attempts that failed in a row open a replica's circuit breaker (default 10)",
            count(config.breaker.failure_threshold, 1, UINT32_MAX - 1));
  of_router("--router-cb-success-threshold", "N", "answers in a row close it (default 3)",
            count(config.breaker.success_threshold, 1, UINT32_MAX - 1));
  of_router("--router-cb-timeout-duration-secs", "S", "that it stays open before it is tried (default 60)",
            count(config.breaker.timeout_duration, 1, 1'000'000'000));
  flags.add_switch("--router-disable-circuit-breaker", "attempts that fail close no replica off",
                   args.disable_circuit_breaker);
  of_router("--router-health-failure-threshold", "N",
            "health checks that fail in a row take a replica out (default 3)",
            count(config.health.failure_threshold, 1, UINT32_MAX - 1));
  of_router("--router-health-success-threshold", "N", "that succeed in a row take it in again (default 2)",
            count(config.health.success_threshold, 1, UINT32_MAX - 1));
  of_router("--router-health-check-interval-secs", "S", "between two of them (default 60)",
            count(config.health.interval, 1, 1'000'000'000));
  flags.add_switch("--router-disable-health-check", "there are none", args.disable_health_check);
}

std::string_view ElasticArgs::given() const {
  if (!config.failures.empty()) return "--replica-failure";
  if (config.mtbf > 0) return "--replica-failure-mtbf";
  if (!config.slowdowns.empty()) return "--replica-slowdown";
  return autoscale.most > 0 ? "--autoscale" : "";
}

std::string_view ElasticArgs::idle_router_flags() const {
  if (!given().empty() || autoscale_target) return "";
  if (!router_flag.empty()) return router_flag;
  return disable_retries || disable_circuit_breaker || disable_health_check ? "--router-disable-*" : "";
}

std::pair<std::uint32_t, std::uint32_t> parse_replica_range(std::string_view what, const std::string& value) {
  const auto parts = halves(value, "..");
  if (!parts) throw_user_error("{} {}: must be MIN..MAX replicas, as in 1..4", what, value);
  const auto least = static_cast<std::uint32_t>(parse_count(what, parts->first, 1, kMostReplicas));
  const auto most = static_cast<std::uint32_t>(parse_count(what, parts->second, 1, kMostReplicas));
  if (most < least) throw_user_error("{} {}: MAX is below MIN; give them as in 1..4", what, value);
  return {least, most};
}

void check_autoscale(const ElasticArgs& args, bool scales, std::string_view range, bool levels) {
  const scheduler::AutoscaleConfig plain;
  const scheduler::AutoscaleConfig& autoscale = args.autoscale;
  const bool slo = autoscale.metric == scheduler::AutoscaleMetric::kSlo;
  if (scales && !args.autoscale_target)
    throw_user_error("{}: needs --autoscale-target, as in queue:8, kv:0.8 or slo:0.99", range);
  if (!scales && (args.autoscale_target || autoscale.interval != plain.interval ||
                  autoscale.scale_down_window != plain.scale_down_window))
    throw_user_error("--autoscale-target: needs {}, MIN..MAX replicas", range);
  if (slo && !levels)
    throw_user_error("--autoscale-target slo:{}: needs --slo, as in --slo ttft:2000 tpot:50",
                     format_real(autoscale.share));
  if (!slo && autoscale.window != plain.window)
    throw_user_error("--autoscale-slo-window-secs: needs --autoscale-target slo:SHARE");
}

void check_elastic_args(const ElasticArgs& args) {
  if (args.config.retry.max_backoff < args.config.retry.initial_backoff)
    throw_user_error("--router-retry-max-backoff-ms: must not be below --router-retry-initial-backoff-ms");
  if (!args.given().empty() || args.autoscale_target) return;
  if (args.startup_seconds)
    throw_user_error("--replica-startup-seconds: no replica starts; give --replica-failure or --autoscale");
}

}  // namespace tpsim::launch
