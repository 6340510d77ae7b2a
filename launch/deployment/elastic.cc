#include "launch/deployment/elastic.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
scheduler::ElasticConfig resolve_elastic(const ServerArgs& args, std::uint32_t replicas,
                                         std::uint32_t initial) {
  const std::string_view given = args.elastic.given();
  scheduler::ElasticConfig config = args.elastic.config;
  if (given.empty()) return {};
  const auto refuse = [given](std::string_view what, std::string_view instead) {
    throw_user_error("{}: with {} is not simulated; {}", given, what, instead);
  };
  if (!args.trace_out.empty()) refuse("--trace-out", "leave one of the two out");
  if (args.max_goodput_rate) refuse("--max-goodput-rate", "give --request-rate");
  const auto check = [replicas](std::string_view flag, std::uint32_t replica) {
    if (replica < replicas) return;
    throw_user_error("{}: there is no replica {}; they are 0 to {}", flag, replica, replicas - 1);
  };
  for (const auto& failure : config.failures) check("--replica-failure", failure.replica);
  for (const auto& slowdown : config.slowdowns) check("--replica-slowdown", slowdown.replica);
  scheduler::AutoscaleConfig& autoscale = config.autoscale;
  if (autoscale.most > 0 && (initial < autoscale.least || initial > autoscale.most))
    throw_user_error("--autoscale {}..{}: --dp-size {} lies outside of it; begin with as many as it may have",
                     autoscale.least, autoscale.most, initial);
  autoscale.initial = initial;
  config.seed = args.random_seed;
  if (args.elastic.disable_retries) config.retry.max_retries = 1;
  if (args.elastic.disable_circuit_breaker) config.breaker.failure_threshold = UINT32_MAX;
  if (args.elastic.disable_health_check) config.health.failure_threshold = UINT32_MAX;
  return config;
}

void write_elastic(const scheduler::ElasticConfig& elastic, Rows& rows) {
  if (!elastic.enabled()) return;
  if (elastic.mtbf > 0) rows["replica_failure_mtbf"] = format_real(elastic.mtbf);
  if (!elastic.failures.empty()) rows["replica_failures"] = std::to_string(elastic.failures.size());
  if (!elastic.slowdowns.empty()) rows["replica_slowdowns"] = std::to_string(elastic.slowdowns.size());
  const scheduler::AutoscaleConfig& autoscale = elastic.autoscale;
  if (autoscale.most == 0) return;
  rows["autoscale"] = fmt::format("{}..{}", autoscale.least, autoscale.most);
  rows["autoscale_target"] =
      fmt::format("{}:{}", autoscale.metric == scheduler::AutoscaleMetric::kQueue ? "queue" : "kv",
                  format_real(autoscale.target));
}

}  // namespace tpsim::launch
