#include "launch/deployment/elastic.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

scheduler::AdmissionConfig resolve_admission(const RouterArgs& router) {
  scheduler::AdmissionConfig config;
  if (!router.max_concurrent_requests) {
    if (router.rate_limit_tokens_per_second)
      throw_user_error(
          "--router-rate-limit-tokens-per-second {}: limits nothing without "
          "--router-max-concurrent-requests, as in SGLang's router; give both",
          *router.rate_limit_tokens_per_second);
    return config;
  }
  config.capacity = *router.max_concurrent_requests;
  const std::uint32_t refill = router.rate_limit_tokens_per_second.value_or(0);
  config.refill = refill > 0 ? refill : config.capacity;
  config.queue_size = router.queue_size.value_or(config.queue_size);
  if (router.queue_timeout_secs) config.queue_timeout = *router.queue_timeout_secs;
  return config;
}

}  // namespace

scheduler::ElasticConfig resolve_elastic(const ServerArgs& args, const RouterArgs& router,
                                         std::uint32_t replicas,
                                         std::vector<scheduler::AutoscaleConfig> autoscale) {
  const std::string_view given = !args.elastic.given().empty()    ? args.elastic.given()
                                 : !autoscale.empty()             ? "--autoscale-target"
                                 : router.max_concurrent_requests ? "--router-max-concurrent-requests"
                                                                  : "";
  scheduler::ElasticConfig config = args.elastic.config;
  config.admission = resolve_admission(router);
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
  config.autoscale = std::move(autoscale);
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
  if (elastic.admission.capacity > 0) {
    rows["max_concurrent_requests"] = std::to_string(elastic.admission.capacity);
    rows["rate_limit_tokens_per_second"] = format_real(elastic.admission.refill);
  }
  if (elastic.autoscale.empty()) return;
  std::string ranges;
  for (const scheduler::AutoscaleConfig& each : elastic.autoscale)
    ranges += fmt::format("{}{}{}{}..{}", ranges.empty() ? "" : ", ", each.name,
                          each.name.empty() ? "" : ": ", each.least, each.most);
  rows["autoscale"] = ranges;
  const scheduler::AutoscaleConfig& rule = elastic.autoscale.front();
  const bool slo = rule.metric == scheduler::AutoscaleMetric::kSlo;
  const char* const name = rule.metric == scheduler::AutoscaleMetric::kQueue ? "queue" : slo ? "slo" : "kv";
  rows["autoscale_target"] = fmt::format("{}:{}", name, format_real(slo ? rule.share : rule.target));
}

}  // namespace tpsim::launch
