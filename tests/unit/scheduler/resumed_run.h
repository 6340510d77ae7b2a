// A run that is interrupted at some moment and gone on with in another one is the run that was not.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "scheduler/checkpoints.h"
#include "tests/unit/scheduler/checking_rank.h"
#include "tests/unit/scheduler/fake_executor.h"

namespace tpsim::scheduler {

// Keeps the state of a run at one of its moments, with the rank's and the number of records at that moment.
class OneCheckpoint : public Checkpoints {
 public:
  OneCheckpoint(std::uint64_t at, const CheckingRank& rank, const RecordingObserver& observer)
      : left_(at), rank_(rank), observer_(observer) {}

  std::string_view resumed() override { return {}; }
  void read_rest(StateReader&) override {}
  bool due() override { return left_-- == 0; }
  void save(StateWriter& state) override {
    bytes = state.bytes();
    rank.emplace(rank_);
    requests = observer_.requests.size();
    steps = observer_.steps.size();
  }

  std::string bytes;
  std::optional<CheckingRank> rank;
  std::size_t requests = 0, steps = 0;

 private:
  std::uint64_t left_;
  const CheckingRank& rank_;
  const RecordingObserver& observer_;
};

class Resumed : public Checkpoints {
 public:
  explicit Resumed(std::string_view bytes) : bytes_(bytes) {}
  std::string_view resumed() override { return bytes_; }
  void read_rest(StateReader& state) override { all_read = state.at_end(); }
  bool due() override { return false; }
  void save(StateWriter&) override {}

  bool all_read = false;

 private:
  std::string_view bytes_;
};

inline std::string text_of(const RequestRecord& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", r.id, static_cast<int>(r.state), r.session,
                     r.input_tokens, r.output_tokens, r.cached_tokens, r.retractions, r.arrival_time,
                     r.first_scheduled_time, r.first_token_time, r.finish_time);
}

inline std::string text_of(const StepRecord& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", r.sequence_number,
                     static_cast<int>(r.forward_mode), r.start_time, r.step_time, r.extend_requests,
                     r.extend_tokens, r.cached_tokens, r.decode_requests, r.decode_tokens, r.capture_bucket,
                     r.waiting, r.running, r.kv_allocated_tokens, r.kv_cached_tokens, r.kv_free_tokens,
                     r.swa_allocated_tokens, r.swa_cached_tokens, r.swa_free_tokens, r.states_held,
                     r.states_cached);
}

// The same run again, interrupted at some moment and gone on with in another one.
inline void resume_and_check(std::mt19937_64& random, const SchedulerConfig& config, const LoadConfig& load,
                             const Workload& workload, const proto::RunReport& report,
                             const RecordingObserver& observer) {
  CheckingRank rank(config);
  RecordingObserver watched;
  const WorkloadView view(workload);
  // Not always reached: then there is nothing to go on from.
  OneCheckpoint checkpoint(random() % (report.steps() + workload.requests.size()), rank, watched);
  const proto::RunReport same = run_workload(config, load, view, rank, watched, &checkpoint);
  ASSERT_EQ(same.SerializeAsString(), report.SerializeAsString());
  if (checkpoint.bytes.empty()) return;
  Resumed resumed(checkpoint.bytes);
  RecordingObserver rest;
  const proto::RunReport later = run_workload(config, load, view, *checkpoint.rank, rest, &resumed);
  ASSERT_TRUE(resumed.all_read);
  ASSERT_EQ(later.SerializeAsString(), report.SerializeAsString());
  ASSERT_EQ(checkpoint.requests + rest.requests.size(), observer.requests.size());
  ASSERT_EQ(checkpoint.steps + rest.steps.size(), observer.steps.size());
  for (std::size_t i = 0; i < rest.requests.size(); ++i)
    ASSERT_EQ(text_of(rest.requests[i]), text_of(observer.requests[checkpoint.requests + i]));
  for (std::size_t i = 0; i < rest.steps.size(); ++i)
    ASSERT_EQ(text_of(rest.steps[i]), text_of(observer.steps[checkpoint.steps + i]));
}

}  // namespace tpsim::scheduler
