// What SGLang's router lets through: a bucket of tokens, of which each request takes one and gives it back
// when its answer has ended; more come with time. A request that finds none waits for one, or is refused.
//
// Source: sglang_router 0.3.2, of whose real process `admission_test.cc` has answers. As there the queue's
// size matters where it is 0 alone, for its one reader takes out all that wait, and nobody waits longer than
// the bucket takes to make a token by itself: who then has none given back by others is given up. At that
// very moment one of those that wait may find it, or not; here none does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>

namespace tpsim::scheduler {

struct AdmissionConfig {
  std::uint32_t capacity = 0;  // --max-concurrent-requests; 0: everything is let through
  double refill = 0;           // tokens a second; --rate-limit-tokens-per-second, `capacity` unless given
  std::uint32_t queue_size = 100;
  double queue_timeout = 60;  // seconds
};

class Admission {
 public:
  explicit Admission(const AdmissionConfig& config) : config_(config), tokens_(config.capacity) {}

  // Whether a request that comes at `now` (seconds, not before the last call's) is let through.
  bool take(double now) {
    refill(now);
    if (tokens_ < 1) return false;
    --tokens_;
    return true;
  }
  struct Wait {
    double until = 0;  // seconds
    // Then, with a token that is given back; else it is given up, unless give_back() names it.
    bool passes = false;
  };
  // Nothing: it is refused. REQUIRES: take() of the same time was false.
  std::optional<Wait> wait(std::uint64_t id, double now) {
    if (config_.queue_size == 0) return std::nullopt;
    const double patience = now + std::min(config_.queue_timeout, (1 - tokens_) / config_.refill);
    if (!returns_.empty() && *returns_.begin() <= patience) {
      const double next = *returns_.begin();
      returns_.erase(returns_.begin());
      return Wait{next, true};
    }
    waiting_.push_back(id);
    return Wait{patience, false};
  }
  void give_up(std::uint64_t id) { std::erase(waiting_, id); }
  // One that was let through ends at `time`, perhaps after now. Returns who is let through then.
  std::optional<std::uint64_t> give_back(double time) {
    if (waiting_.empty()) {
      returns_.insert(time);
      return std::nullopt;
    }
    const std::uint64_t first = waiting_.front();
    waiting_.pop_front();
    return first;
  }

 private:
  void refill(double now) {
    while (!returns_.empty() && *returns_.begin() <= now) {
      add(*returns_.begin(), 1);
      returns_.erase(returns_.begin());
    }
    add(now, 0);
  }
  // Those of `time` and of the time since the last call.
  void add(double time, double given) {
    tokens_ = std::min<double>(tokens_ + std::max(0.0, time - last_) * config_.refill, config_.capacity);
    tokens_ = std::min<double>(tokens_ + given, config_.capacity);
    last_ = std::max(last_, time);
  }

  const AdmissionConfig config_;
  double tokens_;
  double last_ = 0;                    // when it was refilled
  std::deque<std::uint64_t> waiting_;  // the first first
  std::multiset<double> returns_;      // of tokens, at times to come
};

}  // namespace tpsim::scheduler
