#include "scheduler/router/worker_health.h"

#include <algorithm>
#include <cmath>

namespace tpsim::scheduler {

double retry_backoff(const RetryConfig& config, std::uint32_t failed, double drawn) {
  const double pause =
      std::min(config.initial_backoff * std::pow(config.backoff_multiplier, failed - 1), config.max_backoff);
  return pause * (1 + config.jitter_factor * (2 * drawn - 1));
}

CircuitBreaker::State CircuitBreaker::state_at(double now) {
  if (state_ == State::kOpen && now - opened_ >= config_.timeout_duration) change(State::kHalfOpen, now);
  return state_;
}

void CircuitBreaker::change(State to, double now) {
  state_ = to;
  successes_ = 0;
  if (to == State::kOpen) {
    opened_ = now;
  } else {
    failures_ = 0;
  }
}

void CircuitBreaker::on_success(double now) {
  failures_ = 0;
  ++successes_;
  if (state_at(now) == State::kHalfOpen && successes_ >= config_.success_threshold)
    change(State::kClosed, now);
}

void CircuitBreaker::on_failure(double now) {
  successes_ = 0;
  ++failures_;
  const State state = state_at(now);
  if (state == State::kHalfOpen || (state == State::kClosed && failures_ >= config_.failure_threshold))
    change(State::kOpen, now);
}

void HealthChecks::run_until(double now, bool alive) {
  for (; next_ <= now; next_ += config_.interval) {
    std::uint32_t& count = alive ? successes_ : failures_;
    (alive ? failures_ : successes_) = 0;
    ++count;
    if (healthy_ == alive) continue;
    if (count < (alive ? config_.success_threshold : config_.failure_threshold)) continue;
    healthy_ = alive;
    count = 0;
  }
}

}  // namespace tpsim::scheduler
