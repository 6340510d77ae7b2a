// The border between the scheduler and whatever carries out its batches.
//
// The scheduler knows no ranks and no MPI: it hands one ForwardBatch after another to an Executor and is
// told how long each takes. The modeled executor answers from a cost model at once; the numeric one
// computes.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "proto/forward.pb.h"

namespace tpsim::scheduler {

// One pipeline stage in one pass; seconds.
struct StageOutcome {
  double receive = 0;  // from the arrival of what the stage before sent to the first kernel
  double seconds = 0;  // from the first kernel to the last, on the slowest rank of the stage
  double send = 0;     // to the next stage, of the last one: of the tokens to the first
};

// What the scheduler needs to know of one finished pass.
struct StepOutcome {
  double step_time = 0;  // seconds on the slowest rank, from the first kernel to the last
  // Host work, in seconds, between the forming of the batch and its first kernel (a backend that plans on the
  // host). With overlap scheduling it hides behind the pass before.
  double host_time = 0;
  // What the scheduler's thread then needs to issue the pass, in seconds, and how many launches, of kernels
  // and graphs, must find room in the device's queue (SchedulerConfig::launch_queue). No result is looked at
  // meanwhile.
  double issue_time = 0;
  double launches = 0;
  // With several pipeline stages, in their order; step_time is then the sum of their seconds. Valid until the
  // next forward().
  std::span<const StageOutcome> stages = {};

  // Numeric execution only; valid until the next forward(). The sampled tokens: of each request of the extend
  // part in order (a prefill that goes on samples, too, and is ignored), then of the decode set.
  std::span<const std::uint32_t> next_token_ids = {};
  // The request pool indices that they belong to, in the same order.
  std::span<const std::uint32_t> next_token_rows = {};
  // TARGET_VERIFY: how many of next_token_ids belong to each of next_token_rows; otherwise one each.
  std::span<const std::uint32_t> accept_lens = {};
  // With several data-parallel ranks, whose requests follow each other: how many of them each rank has.
  std::span<const std::uint32_t> requests_of_dp_rank = {};
  // [extend requests, vocabulary]: logits at the last token of each, where the executor was asked for them.
  std::span<const float> extend_logits = {};
};

// The executor cannot go on, through no fault of the batch (a rank is gone): the run stops early and what was
// finished is reported.
class ExecutorLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Carries out `batch`. Batches come with consecutive sequence numbers from 0. The reference is not kept.
  // Throws UserError where the batch cannot be carried out, ExecutorLost where no batch can be any more.
  virtual StepOutcome forward(const proto::ForwardBatch& batch) = 0;
  // The server begins anew: nothing of its requests is left, and batches come from 0 again. What was counted
  // stays. Only of executors whose servers are told to (scheduler/elastic).
  virtual void restart() { throw std::logic_error("this executor's server cannot begin anew"); }
};

}  // namespace tpsim::scheduler
