// What stands between a run and its report: shows progress, and stops the run when a signal asks for it or
// ranks are lost.
#pragma once

#include <optional>
#include <string>

#include "launch/cli/terminal.h"
#include "proto/base/stop_flag.h"
#include "scheduler/executor.h"
#include "scheduler/records.h"

namespace tpsim::launch {

// Passes every record on to `sink`.
class RunMonitor : public scheduler::RunObserver {
 public:
  RunMonitor(scheduler::RunObserver& sink, ProgressBar& progress) : sink_(sink), progress_(progress) {}

  void on_request(const scheduler::RequestRecord& record) override { sink_.on_request(record); }
  void on_step(const scheduler::StepRecord& record) override { sink_.on_step(record); }
  bool wants_steps() const override { return sink_.wants_steps(); }
  scheduler::StepTally* tally_of(std::uint32_t replica) override { return sink_.tally_of(replica); }
  // False once a signal came (proto/base/stop_flag.h).
  bool on_progress(const scheduler::Progress& progress) override {
    progress_.update(progress);
    return sink_.on_progress(progress) && !StopFlag::requested();
  }

 private:
  scheduler::RunObserver& sink_;
  ProgressBar& progress_;
};

// Ends the run where ranks are lost or a pass is dropped, so that what was finished can be reported, and
// remembers why.
class LossTolerantExecutor : public scheduler::Executor {
 public:
  explicit LossTolerantExecutor(scheduler::Executor& inner) : inner_(inner) {}

  // Throws scheduler::ExecutorLost where `inner` does, or throws Stopped.
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override {
    try {
      return inner_.forward(batch);
    } catch (const scheduler::ExecutorLost& lost) {
      loss_ = lost.what();
      throw;
    } catch (const Stopped& stopped) {
      throw scheduler::ExecutorLost(stopped.what());
    }
  }

  void restart() override { inner_.restart(); }

  // The sentence of the loss, if there was one.
  const std::optional<std::string>& loss() const { return loss_; }

 private:
  scheduler::Executor& inner_;
  std::optional<std::string> loss_;
};

}  // namespace tpsim::launch
