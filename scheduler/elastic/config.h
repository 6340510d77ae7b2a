// Replicas that die, slow down, come and go while a run lasts. SGLang has no flags for it: these are a
// user's questions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/router/admission.h"
#include "scheduler/router/worker_health.h"

namespace tpsim::scheduler {

// Times in seconds of the run's clock.
struct ReplicaFailure {
  std::uint32_t replica = 0;
  double from = 0;   // it is dead …
  double until = 0;  // … and starts again; infinity: never
};
struct ReplicaSlowdown {
  std::uint32_t replica = 0;
  double from = 0, until = 0;
  double factor = 1;  // by which its passes take longer
};

enum class AutoscaleMetric : std::uint8_t {
  kQueue,  // requests of a replica that run or wait
  kKv,     // share of its KV pool that requests hold
  kSlo     // of all of them: what `share` of the requests of the last `window` needed of what they may need
};

// The rule of Kubernetes' horizontal pod autoscaler, with its defaults (its documentation, "Algorithm
// details" and "Default behavior").
struct AutoscaleConfig {
  std::string name = {};    // of its replicas, for the report; empty: all
  std::uint32_t first = 0;  // of its replicas, which are `most`
  std::uint32_t least = 0, most = 0;
  std::uint32_t initial = 0;  // that are up when the run begins
  AutoscaleMetric metric = AutoscaleMetric::kQueue;
  double target = 1;                 // mean of a replica; 1 with kSlo
  double share = 0.99, window = 60;  // of kSlo; seconds
  double interval = 15;              // seconds between two looks
  double tolerance = 0.1;            // metric / target so close to 1 changes nothing
  double scale_down_window = 300;    // seconds, whose largest recommendation counts
};

// What a replica needs.
struct ReplicaStart {
  double seconds = 0;  // from its start, or start after a death, until it serves
  std::uint32_t gpus = 1;
};

struct ElasticConfig {
  std::vector<ReplicaFailure> failures;
  std::vector<ReplicaSlowdown> slowdowns;
  double mtbf = 0;  // seconds that a replica lives on average, drawn; it starts again at once. 0: for ever
  std::vector<AutoscaleConfig> autoscale;  // no replica in two of them
  // Of the router.
  RetryConfig retry;
  CircuitBreakerConfig breaker;
  HealthCheckConfig health;
  AdmissionConfig admission;
  std::uint64_t seed = 1;  // of lives and of jitter

  bool enabled() const {
    return !failures.empty() || !slowdowns.empty() || mtbf > 0 || !autoscale.empty() ||
           admission.capacity > 0;
  }
};

}  // namespace tpsim::scheduler
