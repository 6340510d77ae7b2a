// A server whose passes take longer than its GPUs would need.
#pragma once

#include "proto/forward.pb.h"
#include "scheduler/executor.h"

namespace tpsim::scheduler {

class SlowableExecutor : public Executor {
 public:
  // `inner` must outlive it.
  explicit SlowableExecutor(Executor& inner) : inner_(inner) {}

  StepOutcome forward(const proto::ForwardBatch& batch) override {
    StepOutcome outcome = inner_.forward(batch);
    outcome.step_time *= factor_;
    return outcome;
  }
  void restart() override { inner_.restart(); }
  // Of passes from now on; of one pipeline stage. 1: as they are.
  void set_factor(double factor) { factor_ = factor; }

 private:
  Executor& inner_;
  double factor_ = 1;
};

}  // namespace tpsim::scheduler
