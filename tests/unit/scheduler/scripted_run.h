// A replica that is driven by a script: requests at their arrival times, and when their clients leave.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/replica.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

class ScriptedRun : public ReplicaEvents {
 public:
  static constexpr double kNever = RequestSource::kNever;
  struct Outcome {
    RequestState state = RequestState::kUnfinished;
    std::uint32_t output_tokens = 0;
    std::uint32_t retractions = 0;
    double time = 0;
  };

  // `cancels`: when each request's client leaves, behind its arrival, or kNever; shorter ones name the first.
  // The executor and the workload must outlive it.
  ScriptedRun(const SchedulerConfig& config, const FrontEndConfig& front_end, Executor& executor,
              const Workload& workload, const std::vector<double>& cancels)
      : config_(config),
        requests_(workload.requests),
        replica_(config_, front_end, executor, *this),
        outcomes_(requests_.size()) {
    for (std::size_t i = 0; i < cancels.size(); ++i) {
      if (cancels[i] != kNever) cancels_.emplace_back(cancels[i], i);
    }
    std::sort(cancels_.begin(), cancels_.end());
  }

  // The next event; false: there is none.
  bool step() {
    const double round = replica_.next_event_time();
    const double arrival = sent_ < requests_.size() ? requests_[sent_].arrival_time : kNever;
    const double cancel = left_ < cancels_.size() ? cancels_[left_].first : kNever;
    if (cancel <= std::min(arrival, round) && cancel != kNever) {
      replica_.cancel(cancels_[left_].second, cancel);
      ++left_;
    } else if (arrival <= round && arrival != kNever) {
      replica_.submit({.id = sent_, .time = arrival, .request = borrowed(requests_[sent_])});
      ++sent_;
    } else if (round != kNever) {
      replica_.advance();
    } else {
      return false;
    }
    return true;
  }

  Replica& replica() { return replica_; }
  std::size_t sent() const { return sent_; }
  // None: it has not left.
  const std::vector<std::optional<Outcome>>& outcomes() const { return outcomes_; }
  std::vector<StepRecord> steps;

  bool more_to_come() const override { return sent_ < requests_.size() || left_ < cancels_.size(); }
  void on_finished(const Req& req, RequestState state, const char* because, double time) override {
    std::optional<Outcome>& outcome = outcomes_.at(req.id);
    if (outcome) throw std::logic_error("request " + std::to_string(req.id) + " leaves twice");
    if ((because != nullptr) != (state == RequestState::kRejected))
      throw std::logic_error("request " + std::to_string(req.id) + " is refused without a reason, or not");
    outcome = {state, req.output_len, req.retractions, time};
  }
  void on_inter_token(double, std::uint32_t) override {}
  void on_step(const StepRecord& record, double, bool) override { steps.push_back(record); }

 private:
  const SchedulerConfig config_;
  const std::vector<WorkloadRequest>& requests_;
  std::vector<std::pair<double, std::uint64_t>> cancels_;  // ascending
  Replica replica_;
  std::vector<std::optional<Outcome>> outcomes_;
  std::size_t sent_ = 0, left_ = 0;
};

}  // namespace tpsim::scheduler
