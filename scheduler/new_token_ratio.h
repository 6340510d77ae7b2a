// SGLang's new_token_ratio: the share of max_new_tokens that admission reserves for running requests.
//
// It starts at 0.7 x conservativeness, decays linearly over 600 decode steps to 14 % of that, jumps up to an
// estimate when requests had to be retracted, and starts again when the server goes idle.
// Constants: SGLang 0.5 environment defaults SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR,
// SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS.
#pragma once

#include <algorithm>
#include <tuple>

namespace tpsim::scheduler {

class NewTokenRatio {
 public:
  explicit NewTokenRatio(double schedule_conservativeness)
      : init_(std::min(kInit * schedule_conservativeness, 1.0)),
        min_(std::min(init_ * kMinFactor, 1.0)),
        decay_((init_ - min_) / kDecaySteps),
        current_(init_) {}

  double current() const { return current_; }
  void decay_step() { current_ = std::max(current_ - decay_, min_); }
  void on_retract(double estimate) { current_ = estimate; }
  void on_idle() { current_ = init_; }

  auto state() { return std::tie(current_); }

 private:
  static constexpr double kInit = 0.7;
  static constexpr double kMinFactor = 0.14;
  static constexpr double kDecaySteps = 600;

  double init_;
  double min_;
  double decay_;
  double current_;
};

}  // namespace tpsim::scheduler
