// Fills LiveStatistics from what a replica does, or several do. Of the replicas' thread, but for snapshot():
// a client that has its answer finds it counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>

#include "launch/serve/live/live_request.h"
#include "launch/serve/live_statistics.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"

namespace tpsim::launch {

class ServerStatistics {
 public:
  // `replica_clock`: whether the times that are told are those of `clock`; computed passes have a clock of
  // their own.
  ServerStatistics(LiveDescription description, const WallClock& clock);

  // A request came; not `accepted`: it is refused without the replica having seen it.
  void on_arrival(bool accepted);
  void on_scheduled(double queue_seconds, std::uint32_t prompt_tokens, std::uint32_t cached_tokens);
  void on_first_token(double ttft);
  void on_inter_token(double gap, std::uint32_t count);
  void on_finished(const scheduler::Req& req, scheduler::RequestState state, double latency);
  void on_step(const scheduler::StepRecord& record, double gpu_seconds);
  // The replica did at `due`, on its clock, what it should have done then; it is `now`.
  void on_lag(double due, double now);

  // Tokens of open requests: prompts of those that have no token yet, and all of the others.
  struct Lengths {
    std::uint64_t pending = 0, decoding = 0;
  };
  // Whether queues and pools were not looked at of late; sooner if `at_leisure`.
  bool wants_to_look(bool at_leisure) const;
  // Looks at those of the replicas, and takes a sample where a second of the wall has passed.
  void look(std::span<const scheduler::DataParallelGroup* const> replicas, const Lengths& lengths);

  // Any thread. Queues and pools are those of the last look.
  LiveStatistics snapshot(bool with_samples = true) const;

 private:
  // REQUIRES: mutex_ is locked.
  void sample(double now);

  const WallClock& clock_;
  mutable std::mutex mutex_;  // of all below but the times, which only the replica's thread knows
  LiveStatistics live_;       // without samples
  LiveSample current_;        // since the last sample
  std::uint64_t ttft_count_ = 0, inter_token_count_ = 0;
  std::uint64_t accepted_steps_ = 0, accepted_tokens_ = 0;
  std::deque<LiveSample> samples_;
  std::chrono::steady_clock::time_point sampled_, looked_;
};

}  // namespace tpsim::launch
