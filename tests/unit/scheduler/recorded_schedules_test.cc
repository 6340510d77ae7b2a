// Every step of the schedules that SGLang's own scheduler made (tests/references/schedule), made again.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/engine.h"
#include "tests/unit/scheduler/fake_executor.h"
#include "tests/unit/scheduler/recorded_schedule.h"
#include "tests/unit/scheduler/scripted_run.h"

namespace tpsim::scheduler {

std::ostream& operator<<(std::ostream& out, const RecordedStep& step) {
  out << step.mode << " decode " << step.decode_requests << " waiting " << step.waiting << " running "
      << step.running << " free " << step.kv_free_tokens << " cached " << step.kv_cached_tokens << " hit "
      << step.cached_tokens << " windows free " << step.swa_free_tokens << " cached "
      << step.swa_cached_tokens << " states free " << step.states_free << " cached " << step.states_cached
      << " extends";
  for (const auto& [prefix, extend] : step.extends) out << ' ' << prefix << '+' << extend;
  return out;
}

std::ostream& operator<<(std::ostream& out, const RecordedOutcome& outcome) {
  const char* const state = outcome.state == RequestState::kCompleted   ? "completed"
                            : outcome.state == RequestState::kCancelled ? "cancelled"
                                                                        : "refused";
  return out << state << " after " << outcome.output_tokens << " tokens and " << outcome.retractions
             << " retractions";
}

namespace {

// Keeps what a recording keeps.
class Recorder : public Executor, public RunObserver {
 public:
  Recorder(std::size_t requests, const PipelineConfig& pipeline)
      : outcomes_(requests), stages_(pipeline.size), decode_sets_(pipeline.micro_batches()) {}

  const std::vector<RecordedStep>& steps() const { return steps_; }
  const std::vector<RecordedOutcome>& outcomes() const { return outcomes_; }

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    RecordedStep& step = steps_.emplace_back();
    std::uint64_t extend_tokens = 0;
    // A request decodes in the micro-batch that extended it last.
    for (const std::uint32_t row : batch.decode_leave()) --decode_sets_[micro_batch_[row]];
    for (const std::uint32_t row : batch.decode_join()) ++decode_sets_[micro_batch_[row]];
    for (int i = 0; i < batch.extend_lens_size(); ++i) {
      micro_batch_[batch.extend_req_pool_indices(i)] = batch.micro_batch();
      step.extends.push_back({batch.extend_prefix_lens(i), batch.extend_lens(i)});
      extend_tokens += batch.extend_lens(i);
    }
    const std::int64_t decoding =
        batch.forward_mode() == proto::EXTEND ? 0 : decode_sets_[batch.micro_batch()];
    const double seconds = recorded_step_seconds(extend_tokens, static_cast<std::uint64_t>(decoding));
    for (std::size_t i = 0; i < stages_.size(); ++i)
      stages_[i] = {kRecordedReceive, seconds + static_cast<double>(i) * kRecordedNextStage, kRecordedSend};
    return {.step_time = seconds, .stages = stages_};
  }

  void on_step(const StepRecord& record) override {
    RecordedStep& step = steps_.back();
    // SGLang's scheduler knows no TARGET_VERIFY: its worker makes one of a DECODE.
    step.mode = record.forward_mode == proto::TARGET_VERIFY
                    ? 'D'
                    : proto::ForwardMode_Name(record.forward_mode).front();
    step.cached_tokens = record.cached_tokens;
    step.decode_requests = record.decode_requests;
    step.waiting = record.waiting;
    step.running = record.running;
    step.kv_free_tokens = static_cast<std::int64_t>(record.pools[kvcache::kKvPool].free);
    step.kv_cached_tokens = static_cast<std::int64_t>(record.pools[kvcache::kKvPool].cached);
    step.swa_free_tokens = static_cast<std::int64_t>(record.pools[kvcache::kWindowPool].free);
    step.swa_cached_tokens = static_cast<std::int64_t>(record.pools[kvcache::kWindowPool].cached);
    step.states_free = static_cast<std::int64_t>(record.pools[kvcache::kStatePool].free);
    step.states_cached = static_cast<std::int64_t>(record.pools[kvcache::kStatePool].cached);
  }

  void on_request(const RequestRecord& record) override {
    outcomes_.at(record.id) = {record.state, record.output_tokens, record.retractions};
  }

  bool on_progress(const Progress&) override { return true; }
  void on_outcome(std::uint64_t id, const RecordedOutcome& outcome) { outcomes_.at(id) = outcome; }

 private:
  std::vector<RecordedStep> steps_;
  std::vector<RecordedOutcome> outcomes_;
  std::vector<StageOutcome> stages_;
  std::vector<std::int64_t> decode_sets_;               // requests of each micro-batch
  std::map<std::uint32_t, std::uint32_t> micro_batch_;  // of a row
};

template <typename T>
std::optional<std::size_t> first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!(a[i] == b[i])) return i;
  }
  return std::nullopt;
}

// The same with clients that leave. Returns the tokens evicted.
class RecordedClients : public ScriptedRun {
 public:
  RecordedClients(const RecordedSchedule& recorded, Recorder& recorder)
      : ScriptedRun(recorded.config, recorded.load.front_end, recorder, recorded.workload, recorded.cancels),
        recorder_(recorder) {}
  void on_step(const StepRecord& record, double, bool) override { recorder_.on_step(record); }
  void on_finished(const Req& req, RequestState state, const char* because, double time) override {
    ScriptedRun::on_finished(req, state, because, time);
    recorder_.on_outcome(req.id, {state, req.output_len, req.retractions});
  }

 private:
  Recorder& recorder_;
};

std::uint64_t serve(const RecordedSchedule& recorded, Recorder& recorder) {
  if (recorded.cancels.empty())
    return run_workload(recorded.config, recorded.load, WorkloadView(recorded.workload), recorder, recorder)
        .evicted_tokens();
  RecordedClients run(recorded, recorder);
  while (run.step()) {
  }
  return run.replica().schedulers().evicted_tokens();
}

void expect_same(const RecordedSchedule& recorded) {
  SCOPED_TRACE("workload " + recorded.name);
  Recorder mine(recorded.workload.requests.size(), recorded.config.pipeline);
  const std::uint64_t evicted_tokens = serve(recorded, mine);
  if (const auto step = first_difference(mine.steps(), recorded.steps)) {
    ADD_FAILURE() << "step " << *step << ":\n  tpsim  " << mine.steps()[*step] << "\n  SGLang "
                  << recorded.steps[*step];
    return;
  }
  EXPECT_EQ(mine.steps().size(), recorded.steps.size());
  if (const auto request = first_difference(mine.outcomes(), recorded.outcomes)) {
    ADD_FAILURE() << "request " << *request << ":\n  tpsim  " << mine.outcomes()[*request] << "\n  SGLang "
                  << recorded.outcomes[*request];
  }
  EXPECT_EQ(evicted_tokens, recorded.evicted_tokens);
}

// "0.5.23" of the file "0.5.23-windows".
SglangRelease release_of(const std::string& file) {
  return parse_sglang_release(file.substr(0, file.find('-')));
}

class RecordedSchedules : public testing::TestWithParam<const char*> {};

TEST_P(RecordedSchedules, AreMadeAgainStepForStep) {
  const auto schedules = read_recorded_schedules(
      std::string(TPSIM_RECORDED_SCHEDULES) + "/" + GetParam() + ".txt.gz", release_of(GetParam()));
  ASSERT_GE(schedules.size(), 100u);
  for (const RecordedSchedule& recorded : schedules) expect_same(recorded);
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '.' || c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Releases, RecordedSchedules,
                         testing::Values("0.5.23", "0.5.14", "0.5.12", "0.5.23-windows", "0.5.23-states",
                                         "0.5.23-speculative", "0.5.12-speculative", "0.5.23-pipeline",
                                         "0.5.12-pipeline", "0.5.23-cancel", "0.5.12-cancel"),
                         test_name);

}  // namespace
}  // namespace tpsim::scheduler
