// Schedules that SGLang's own scheduler made, as tests/references/schedule/record_schedules.py recorded them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

struct RecordedStep {
  struct Extend {
    std::uint32_t prefix_len = 0;  // tokens
    std::uint32_t extend_len = 0;
    friend bool operator==(const Extend&, const Extend&) = default;
  };
  char mode = 0;  // Extend, Mixed, Decode
  std::vector<Extend> extends;
  std::int64_t cached_tokens = 0;
  std::int64_t decode_requests = 0;
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  std::int64_t kv_free_tokens = 0;
  std::int64_t kv_cached_tokens = 0;
  std::int64_t states_free = 0;  // of a pool of states, in states
  std::int64_t states_cached = 0;
  std::int64_t swa_free_tokens = 0;  // of the pool of window layers
  std::int64_t swa_cached_tokens = 0;
  friend bool operator==(const RecordedStep&, const RecordedStep&) = default;
};

struct RecordedOutcome {
  RequestState state = RequestState::kUnfinished;
  std::uint32_t output_tokens = 0;
  std::uint32_t retractions = 0;
  friend bool operator==(const RecordedOutcome&, const RecordedOutcome&) = default;
};

struct RecordedSchedule {
  std::string name;  // "small 17"
  SchedulerConfig config;
  LoadConfig load;
  Workload workload;
  std::vector<double> cancels;  // when each request's client leaves; of none where nobody does
  std::vector<RecordedStep> steps;
  std::uint64_t evicted_tokens = 0;
  std::vector<RecordedOutcome> outcomes;  // of each request
};

// The clock of the recordings (clock.py, TickTimes): whole ticks, so that sums are exact.
inline constexpr double kTick = 0x1p-20;                                            // seconds
inline constexpr double kRecordedSchedulerStep = 1024 * kTick;                      // host work of a step
inline constexpr double kRecordedSend = 64 * kTick, kRecordedReceive = 32 * kTick;  // PipelineTicks
inline constexpr double kRecordedNextStage = 256 * kTick;  // that a stage takes longer than the one before
double recorded_step_seconds(std::uint64_t extend_tokens, std::uint64_t decode_requests);

// All schedules of a file, which is gzip-compressed. `release` is that of SGLang which made them.
// Throws std::runtime_error for a file that is not as record_schedules.py writes it, UserError for one that
// cannot be read.
std::vector<RecordedSchedule> read_recorded_schedules(const std::filesystem::path& path,
                                                      SglangRelease release);

}  // namespace tpsim::scheduler
