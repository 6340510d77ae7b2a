// Replicas that die, slow down, come and go: the router's rules and the autoscaler's by hand, and random
// failures under random loads, after which every request has ended once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "scheduler/elastic/autoscaler.h"
#include "scheduler/engine.h"
#include "scheduler/router/worker_health.h"
#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/fleet_runs.h"

namespace tpsim::scheduler::elastic_test {

constexpr double kTtftMs = 50;
constexpr double kForever = std::numeric_limits<double>::infinity();

// Whose server may begin anew.
class MortalExecutor : public FakeExecutor {
 public:
  int restarts = 0;

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    EXPECT_EQ(batch.sequence_number(), batches.size());
    return FakeExecutor::forward(batch);
  }
  void restart() override {
    ++restarts;
    batches.clear();
  }
};

struct Served {
  proto::RunReport report;
  std::map<std::uint64_t, RequestRecord> requests;
  int restarts = 0;
};

Served serve(const Workload& workload, std::size_t replicas, RouterPolicy policy,
             const ElasticConfig& elastic, double startup = 0.5) {
  std::vector<std::unique_ptr<MortalExecutor>> executors;
  const SchedulerConfig config = pool_of(2500);
  Fleet fleet;
  for (std::size_t i = 0; i < replicas; ++i)
    fleet.servers.push_back({&config,
                             executors.emplace_back(std::make_unique<MortalExecutor>()).get(),
                             nullptr,
                             {.seconds = startup, .gpus = 2}});
  LoadConfig load;
  load.router.policy = policy;
  load.elastic = elastic;
  load.goodput.ttft_ms = kTtftMs;
  KeptRequests kept;
  Served served;
  served.report = run_workload(fleet, load, WorkloadView(workload), kept);
  served.requests = std::move(kept.requests);
  for (const auto& executor : executors) served.restarts += executor->restarts;
  return served;
}

std::map<RequestState, std::uint64_t> count(const Served& served) {
  std::map<RequestState, std::uint64_t> out;
  for (const auto& [id, record] : served.requests) ++out[record.state];
  return out;
}

// Without what only reports of elastic runs have.
std::string plain(proto::RunReport report) {
  report.clear_elasticity();
  for (proto::ReplicaReport& replica : *report.mutable_replicas()) {
    replica.clear_up_seconds();
    replica.clear_gpu_seconds();
    replica.clear_deaths();
  }
  return report.SerializeAsString();
}

constexpr RouterPolicy kPolicies[] = {RouterPolicy::kRandom, RouterPolicy::kRoundRobin,
                                      RouterPolicy::kPowerOfTwo, RouterPolicy::kCacheAware};

TEST(Elastic, WhereNothingHappensTheReportIsThePlainOne) {
  for (const RouterPolicy policy : kPolicies) {
    const Workload workload = random_workload(3, 150);
    const Served before = serve(workload, 3, policy, {});
    ElasticConfig fixed;
    fixed.autoscale = {{.least = 3, .most = 3, .initial = 3, .target = 2}};
    const Served scaled = serve(workload, 3, policy, fixed);
    EXPECT_EQ(plain(scaled.report), before.report.SerializeAsString());
    ElasticConfig late;  // after the end
    late.failures = {{0, 1e6, kForever}};
    EXPECT_EQ(plain(serve(workload, 3, policy, late).report), before.report.SerializeAsString());
    for (const proto::ReplicaReport& replica : scaled.report.replicas()) {
      EXPECT_DOUBLE_EQ(replica.gpu_seconds(), 2 * replica.up_seconds());
      EXPECT_GE(replica.up_seconds(), scaled.report.duration());
    }
  }
}

TEST(Elastic, RandomFailuresEndEveryRequestOnce) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    const std::size_t replicas = 2 + random() % 4;
    const Workload workload = random_workload(random(), 120, 1 + random() % 60);
    const double end = workload.requests.back().arrival_time + 0.5;
    const auto moment = [&] { return end * static_cast<double>(random() % 1000) / 1000; };
    ElasticConfig elastic;
    elastic.seed = random();
    elastic.breaker.timeout_duration = 0.3;
    elastic.health.interval = 0.2;
    elastic.breaker.failure_threshold = random() % 2 == 0 ? 3 : 10;
    for (std::uint32_t i = 0; i < replicas; ++i) {
      if (random() % 2 == 0) elastic.failures.push_back({i, moment(), random() % 3 == 0 ? kForever : end});
      if (random() % 2 == 0) elastic.slowdowns.push_back({i, moment(), end, 3});
    }
    if (random() % 2 == 0) elastic.mtbf = 0.2 + end / 2;
    if (random() % 2 == 0)
      elastic.autoscale = {{.least = 1,
                            .most = static_cast<std::uint32_t>(replicas),
                            .initial = static_cast<std::uint32_t>(1 + random() % replicas),
                            .metric = random() % 2 == 0 ? AutoscaleMetric::kQueue : AutoscaleMetric::kSlo,
                            .target = 1,
                            .interval = 0.1,
                            .scale_down_window = 0.3}};
    const RouterPolicy policy = kPolicies[random() % 4];
    const Served served = serve(workload, replicas, policy, elastic, 0.1);
    ASSERT_EQ(served.requests.size(), 120U) << round;
    auto states = count(served);
    EXPECT_EQ(states[RequestState::kUnfinished] + states[RequestState::kCancelled], 0U);
    EXPECT_EQ(served.report.completed(), states[RequestState::kCompleted]);
    EXPECT_EQ(served.report.lost(), states[RequestState::kFailed]);
    EXPECT_EQ(served.report.elasticity().lost_in_flight() + served.report.elasticity().lost_unreached(),
              states[RequestState::kFailed]);
    for (const auto& [id, record] : served.requests) {
      EXPECT_DOUBLE_EQ(record.arrival_time, workload.requests[id].arrival_time);
      EXPECT_GE(record.finish_time, record.arrival_time);
      if (record.state != RequestState::kCompleted) continue;
      EXPECT_GE(record.ttft(), 0);
    }
    for (const proto::ReplicaReport& replica : served.report.replicas()) {
      EXPECT_GE(replica.gpu_seconds() + 1e-9, 2 * replica.up_seconds());
      EXPECT_LT(replica.retractions(), 1U << 30) << "wrapped around";
    }
    EXPECT_EQ(serve(workload, replicas, policy, elastic, 0.1).report.SerializeAsString(),
              served.report.SerializeAsString());
  }
}

TEST(Elastic, WithAllDeadEveryRequestFailsAfterItsAttempts) {
  ElasticConfig elastic;
  elastic.failures = {{0, 0, kForever}, {1, 0, kForever}};
  const Served served = serve(random_workload(1, 50), 2, RouterPolicy::kCacheAware, elastic);
  EXPECT_EQ(count(served)[RequestState::kFailed], 50U);
  EXPECT_EQ(served.report.elasticity().retries(), 50U * 4);
  EXPECT_EQ(
      served.report.elasticity().message(),
      "50 of 50 requests ended with an error: 0 whose answer had begun when their replica died, 50 that "
      "reached no replica in 5 attempts");
  for (const auto& [id, record] : served.requests) {
    const double waited = record.finish_time - record.arrival_time;
    const double pauses = 0.05 * (1 + 1.5 + 1.5 * 1.5 + 1.5 * 1.5 * 1.5);
    EXPECT_GE(waited, pauses * 0.8);
    EXPECT_LE(waited, pauses * 1.2);
  }
}

// What had begun is lost, what had not goes elsewhere, and the prefix cache is cold.
TEST(Elastic, ADeadReplicaLosesWhatItHad) {
  Workload workload;
  for (int i = 0; i < 4; ++i) {
    WorkloadRequest r;
    r.arrival_time = i;
    r.prompt = kvcache::TokenSequence(std::vector<kvcache::TokenRun>{{1000, 500}});
    r.max_new_tokens = 20;
    workload.requests.push_back(std::move(r));
  }
  workload.requests[1].max_new_tokens = 90;  // from second 1 on, 0.01 s each
  ElasticConfig elastic;
  elastic.failures = {{0, 1.5, 1.6}};
  elastic.health.interval = 0.1;
  elastic.health.failure_threshold = 1;
  const Served served = serve(workload, 2, RouterPolicy::kCacheAware, elastic, 1);
  EXPECT_EQ(served.requests.at(1).state, RequestState::kFailed);
  EXPECT_EQ(served.requests.at(1).replica, 0U);
  EXPECT_EQ(served.requests.at(2).state, RequestState::kCompleted);
  EXPECT_EQ(served.requests.at(2).replica, 1U);
  EXPECT_EQ(served.requests.at(2).cached_tokens, 0U);
  EXPECT_EQ(served.report.replicas(0).deaths(), 1U);
  EXPECT_EQ(served.report.elasticity().lost_in_flight(), 1U);
  EXPECT_EQ(served.restarts, 2);  // as it died, and as it began anew
}

TEST(Elastic, ASlowReplicaTakesLonger) {
  const Workload workload = random_workload(4, 60);
  ElasticConfig elastic;
  elastic.slowdowns = {{0, 0, kForever, 4}};
  const Served plain_run = serve(workload, 2, RouterPolicy::kRoundRobin, {});
  const Served slow = serve(workload, 2, RouterPolicy::kRoundRobin, elastic);
  EXPECT_GT(slow.report.replicas(0).busy_seconds(), 1.5 * plain_run.report.replicas(0).busy_seconds());
  EXPECT_DOUBLE_EQ(slow.report.replicas(1).busy_seconds(), plain_run.report.replicas(1).busy_seconds());
}

TEST(Elastic, ScalesWithItsLoad) {
  const Workload workload = random_workload(8, 400, 8);
  ElasticConfig elastic;
  elastic.autoscale = {{.least = 1, .most = 4, .initial = 1, .target = 4, .interval = 0.2}};
  const Served served = serve(workload, 4, RouterPolicy::kRoundRobin, elastic, 0.1);
  EXPECT_EQ(served.requests.size(), 400U);
  EXPECT_EQ(served.report.lost(), 0U);
  EXPECT_GT(served.report.elasticity().most_replicas(), 2U);
  EXPECT_LT(served.report.replicas(3).gpu_seconds(), served.report.replicas(0).gpu_seconds());
}

// More than one replica serves in time for two seconds, then a request a second.
Workload busy_then_idle() {
  Workload workload = random_workload(8, 600, 8);
  const double end = workload.requests.back().arrival_time;
  for (int i = 0; i < 20; ++i) {
    workload.requests.push_back(workload.requests[static_cast<std::size_t>(i)]);
    workload.requests.back().arrival_time = end + 1 + i;
  }
  return workload;
}

// The replicas behind `first` come when requests were too slow, after their start, and go when all is well.
TEST(Elastic, ScalesWithItsServiceLevels) {
  const Workload workload = busy_then_idle();
  constexpr double kLook = 0.2, kStart = 0.3;
  for (const std::uint32_t first : {0U, 1U}) {
    ElasticConfig elastic;
    elastic.autoscale = {{.first = first,
                          .least = 1,
                          .most = 3,
                          .initial = 1,
                          .metric = AutoscaleMetric::kSlo,
                          .share = 1,
                          .window = 2 * kLook,
                          .interval = kLook,
                          .scale_down_window = 1}};
    const Served served = serve(workload, first + 3, RouterPolicy::kRoundRobin, elastic, kStart);
    double broken = kForever, came = kForever;
    for (const auto& [id, record] : served.requests) {
      const bool scaled = record.replica >= first;
      if (scaled && record.ttft() * 1e3 > 1.1 * kTtftMs) broken = std::min(broken, record.finish_time);
      if (record.replica > first) came = std::min(came, record.arrival_time);
      if (id >= 610) {
        EXPECT_LE(record.replica, first) << id;
      }
    }
    const double up = std::ceil(broken / kLook) * kLook + kStart;
    EXPECT_GE(came, up) << first;
    EXPECT_LT(came, up + 0.05) << first;
    EXPECT_EQ(served.report.elasticity().most_replicas(), first + 3);
    EXPECT_LT(served.report.replicas(static_cast<int>(first) + 2).gpu_seconds(),
              served.report.replicas(0).gpu_seconds() / 2);
    EXPECT_DOUBLE_EQ(served.report.replicas(0).up_seconds(), served.report.replicas(0).gpu_seconds() / 2);
    EXPECT_EQ(
        serve(workload, first + 3, RouterPolicy::kRoundRobin, elastic, kStart).report.SerializeAsString(),
        served.report.SerializeAsString());
  }
}

TEST(AnswerWindow, IsWhatAShareNeeded) {
  AnswerWindow window;
  EXPECT_LT(window.needed_by(0.9, 10, 0), 0);
  for (int i = 1; i <= 10; ++i) window.add(i, 11 - i);
  window.add(30, 99);  // later
  EXPECT_EQ(window.needed_by(0.9, 20, 10), 9);
  EXPECT_EQ(window.needed_by(0.91, 20, 10), 10);
  EXPECT_EQ(window.needed_by(1, 5, 10), 5);  // those of 6 to 10
  EXPECT_LT(window.needed_by(1, 5, 20), 0);
  EXPECT_EQ(window.needed_by(0.5, 5, 30), 99);
}

TEST(Autoscaler, IsThatOfKubernetes) {
  Autoscaler scaler({.least = 1, .most = 10, .initial = 2, .target = 10});
  EXPECT_EQ(scaler.desired(15, 2, 0, 2 * 10.9), 2U);  // within the tolerance
  EXPECT_EQ(scaler.desired(30, 2, 0, 35), 4U);        // ceil(35 / 10)
  EXPECT_EQ(scaler.desired(45, 2, 2, 35), 4U);        // those that start count as idle
  EXPECT_EQ(scaler.desired(60, 4, 0, 400), 8U);       // doubled at most
  EXPECT_EQ(scaler.desired(75, 8, 0, 10), 8U);        // 1, but the window remembers 8
  EXPECT_EQ(scaler.desired(359, 8, 0, 10), 8U);
  EXPECT_EQ(scaler.desired(361, 8, 0, 10), 1U);  // 8 of second 60 is out of it
  EXPECT_EQ(scaler.desired(700, 8, 0, 1e6), 10U);
}

TEST(CircuitBreaker, OpensTriesAndCloses) {
  CircuitBreaker breaker({.failure_threshold = 2, .success_threshold = 2, .timeout_duration = 10});
  breaker.on_failure(0);
  breaker.on_success(1);
  breaker.on_failure(2);
  EXPECT_TRUE(breaker.lets_through(2));
  breaker.on_failure(3);
  EXPECT_FALSE(breaker.lets_through(12));
  EXPECT_TRUE(breaker.lets_through(13));
  breaker.on_failure(14);  // half open: one is enough
  EXPECT_FALSE(breaker.lets_through(23));
  EXPECT_TRUE(breaker.lets_through(24));
  breaker.on_success(24);
  breaker.on_success(25);
  breaker.on_failure(26);
  EXPECT_TRUE(breaker.lets_through(26));
}

TEST(HealthChecks, CountInARow) {
  HealthChecks checks({.failure_threshold = 3, .success_threshold = 2, .interval = 60});
  checks.run_until(179, false);
  EXPECT_TRUE(checks.healthy());
  checks.run_until(180, false);
  EXPECT_FALSE(checks.healthy());
  checks.run_until(240, true);
  EXPECT_FALSE(checks.healthy());
  checks.run_until(300, true);
  EXPECT_TRUE(checks.healthy());
}

TEST(Retries, WaitLongerEachTime) {
  const RetryConfig config{.initial_backoff = 0.1, .max_backoff = 0.3, .backoff_multiplier = 2};
  EXPECT_DOUBLE_EQ(retry_backoff(config, 1, 0.5), 0.1);
  EXPECT_DOUBLE_EQ(retry_backoff(config, 2, 0.5), 0.2);
  EXPECT_DOUBLE_EQ(retry_backoff(config, 5, 0.5), 0.3);
  EXPECT_DOUBLE_EQ(retry_backoff(config, 1, 0), 0.08);
}

}  // namespace tpsim::scheduler::elastic_test
