// What a router makes of workers that do not answer, as sglang_router 0.3.2 does (crate sgl-model-gateway:
// core/retry.rs, core/circuit_breaker.rs, core/worker.rs; defaults of its router_args.py).
#pragma once

#include <cstdint>

namespace tpsim::scheduler {

// Seconds.
struct RetryConfig {
  std::uint32_t max_retries = 5;  // attempts in all, the first one counted; at least 1
  double initial_backoff = 0.05;
  double max_backoff = 30;
  double backoff_multiplier = 1.5;
  double jitter_factor = 0.2;  // of a pause, by which it is longer or shorter
};

// Before the attempt that follows `failed` ones; `drawn` in [0, 1) says how much of the jitter.
// REQUIRES: failed > 0.
double retry_backoff(const RetryConfig& config, std::uint32_t failed, double drawn);

// --cb-window-duration-secs is read there by nobody.
struct CircuitBreakerConfig {
  std::uint32_t failure_threshold = 10;  // in a row open it; UINT32_MAX: never
  std::uint32_t success_threshold = 3;   // in a row close it again
  double timeout_duration = 60;          // seconds that it stays open, before some are tried
};

struct HealthCheckConfig {
  std::uint32_t failure_threshold = 3;  // in a row make a worker unhealthy; UINT32_MAX: never
  std::uint32_t success_threshold = 2;  // in a row make it healthy again
  double interval = 60;                 // seconds, from the beginning of the run
};

class CircuitBreaker {
 public:
  explicit CircuitBreaker(const CircuitBreakerConfig& config) : config_(config) {}

  // Times are not before those of the calls before.
  bool lets_through(double now) { return state_at(now) != State::kOpen; }
  void on_success(double now);
  void on_failure(double now);

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kHalfOpen };
  State state_at(double now);
  void change(State to, double now);

  CircuitBreakerConfig config_;
  State state_ = State::kClosed;
  std::uint32_t failures_ = 0, successes_ = 0;  // in a row
  double opened_ = 0;
};

// A dead worker refuses connections, so that no check waits for its timeout.
class HealthChecks {
 public:
  explicit HealthChecks(const HealthCheckConfig& config) : config_(config), next_(config.interval) {}

  // All checks up to `now`; the worker has been `alive`, or not, since the last call.
  void run_until(double now, bool alive);
  bool healthy() const { return healthy_; }

 private:
  HealthCheckConfig config_;
  double next_;
  bool healthy_ = true;
  std::uint32_t failures_ = 0, successes_ = 0;  // in a row
};

}  // namespace tpsim::scheduler
