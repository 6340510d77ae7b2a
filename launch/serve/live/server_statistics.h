// Fills LiveStatistics from what a replica does. Of the replica's thread, but for snapshot().
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "launch/serve/live/wall_clock.h"
#include "launch/serve/live_statistics.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"

namespace tpsim::launch {

class ServerStatistics {
 public:
  // `replica_clock`: whether the times that are told are those of `clock`; computed passes have a clock of
  // their own.
  ServerStatistics(LiveDescription description, const WallClock& clock);

  void on_accepted() { ++live_.accepted_requests; }
  // Refused without the replica having seen it.
  void on_queue_full() { ++live_.rejected_requests; }
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
  // Takes a sample where a second of the wall has passed, and makes what is known so far visible to
  // snapshot() where that was not done of late, or `at_once`.
  void publish(const scheduler::DataParallelGroup& schedulers, const Lengths& lengths, bool at_once);

  // A copy of what was published last. Any thread.
  LiveStatistics snapshot() const;

 private:
  void sample(double now);

  const WallClock& clock_;
  LiveStatistics live_;  // without samples
  LiveSample current_;   // since the last sample
  std::uint64_t ttft_count_ = 0, inter_token_count_ = 0;
  std::chrono::steady_clock::time_point sampled_, published_;
  std::uint64_t accepted_steps_ = 0, accepted_tokens_ = 0;

  mutable std::mutex mutex_;
  LiveStatistics shared_;
  std::deque<LiveSample> samples_;
};

}  // namespace tpsim::launch
