// An executor with a cost that is easy to predict, and an observer that keeps every record.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/engine.h"
#include "scheduler/executor.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

// Step time = base + per_prefill_token * extend tokens, seconds; keeps the batches.
class FakeExecutor : public Executor {
 public:
  double base = 0.01;
  double per_prefill_token = 1e-5;
  double prefill_issue = 0;  // StepOutcome::issue_time of a prefill, of any size
  double prefill_launches = 0;
  std::vector<proto::ForwardBatch> batches;

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    batches.push_back(batch);
    double tokens = 0;
    for (const std::uint32_t length : batch.extend_lens()) tokens += length;
    const bool prefill = tokens > 0;
    return {.step_time = base + per_prefill_token * tokens,
            .issue_time = prefill ? prefill_issue : 0,
            .launches = prefill ? prefill_launches : 0};
  }
};

class RecordingObserver : public RunObserver {
 public:
  std::vector<RequestRecord> requests;
  std::vector<StepRecord> steps;
  std::function<bool(const Progress&)> progress = [](const Progress&) { return true; };

  void on_request(const RequestRecord& record) override { requests.push_back(record); }
  void on_step(const StepRecord& record) override { steps.push_back(record); }
  bool on_progress(const Progress& p) override { return progress(p); }
};

}  // namespace tpsim::scheduler
