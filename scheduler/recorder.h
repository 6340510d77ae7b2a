// What a run leaves behind: the scheduler's part of its report, and the records of its requests and steps,
// which go to an observer as they come.
//
// It steps nothing: whatever moves replicas through time (engine.cc) tells it what happened.
#pragma once

#include <cstdint>
#include <tuple>

#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/metrics.h"
#include "scheduler/overload.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"
#include "scheduler/req.h"

namespace tpsim::scheduler {

class RunRecorder {
 public:
  // All references must outlive it.
  RunRecorder(const SchedulerConfig& config, const LoadConfig& load, const Offered& offered,
              RunObserver& observer);

  // What happens between the two is a warm-up, of which nothing is kept; nor of what `schedulers` counted.
  void begin_warm_up() { warming_up_ = true; }
  void end_warm_up(const DataParallelGroup& schedulers);
  bool warming_up() const { return warming_up_; }

  // As ReplicaEvents has them.
  void on_inter_token(double gap, std::uint32_t count) {
    if (!warming_up_) metrics_.on_inter_token(gap, count);
  }
  void on_step(const StepRecord& record, double gpu_seconds);
  void on_finished(const Req& req, RequestState state, double time);

  // At `time`, of `total` requests.
  Progress progress(double time, std::uint64_t total) const {
    return {time, metrics_.finished(), total, metrics_.steps()};
  }
  // Of all that was recorded. `stopped_early`: requests that `replica` still has are recorded as unfinished.
  // Nothing may be recorded afterwards.
  proto::RunReport report(const Replica& replica, bool stopped_early);

  auto state() { return std::tie(metrics_, overload_, warmup_retractions_, warmup_evicted_tokens_); }

 private:
  const SpeculationConfig& speculation_;
  const Offered& offered_;
  RunObserver& observer_;
  RunMetrics metrics_;
  OverloadWatch overload_;
  std::uint64_t warmup_retractions_ = 0;
  std::uint64_t warmup_evicted_tokens_ = 0;
  bool warming_up_ = false;
};

}  // namespace tpsim::scheduler
