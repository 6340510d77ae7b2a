// When each pipeline stage works on which micro-batch, and how long none of its GPUs do.
//
// A stage begins a micro-batch when it is free, its host has issued the kernels, and what the stage before
// sends is there. Sending keeps a stage: the next pass waits for the stream on which the send runs
// (_pp_commit_proxy_send_work and _pp_wait_forward_dependencies in managers/scheduler_pp_mixin.py; so without
// SGLANG_PP_COMM_OVERLAP, the default). Receiving does not. Every stage runs the same scheduler; it goes on
// when the stage before has launched its next micro-batch, so each is one step of the host behind.
#pragma once

#include <span>
#include <tuple>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/executor.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

class PipelineTimeline {
 public:
  explicit PipelineTimeline(std::size_t stages) : stages_(stages), last_pass_(stages) {}

  // All times in seconds of the run's clock.
  struct Pass {
    double start = 0;  // first kernel, on the first stage
    double end = 0;    // the tokens are with the first stage's scheduler
  };
  // `issued`: the first stage's kernels; the others' follow after `host` each. `not_before`: the first stage
  // waits until then, issued or not. REQUIRES: as many stages as the constructor was told.
  Pass launch(double issued, double host, double not_before, std::span<const StageOutcome> stages);

  // Kernels of all stages together in the pass launched last, over the number of stages.
  static double busy_seconds(std::span<const StageOutcome> stages);
  // The stages in the pass launched last; valid until the next.
  std::span<const StageTimes> last_pass() const { return last_pass_; }

  // What the stages did since the last reset(), into pipeline_stages and pipeline_bubble_fraction: of the
  // time in which some micro-batch was under way, the part in which the stages, on average, computed nothing.
  void write_report(proto::RunReport& report) const;
  // The clock begins again at 0.
  void reset();

  auto state() { return std::tie(stages_, under_way_, last_end_); }

 private:
  struct Stage {
    double free = 0;  // can begin the next pass
    double busy = 0, sending = 0;
  };
  std::vector<Stage> stages_;
  std::vector<StageTimes> last_pass_;
  double under_way_ = 0;  // seconds in which some pass was
  double last_end_ = 0;
};

}  // namespace tpsim::scheduler
