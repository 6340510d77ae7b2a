// A server's log batch by batch against the steps of the run.
//
// The log tells times between decode batches only. One of SGLang 0.5 is logged when its result is processed;
// with overlap the pass after it has been launched by then. So
//   - a decode batch between two others took the time since the one before it;
//   - of decode batches around prefills the first waited for the host to launch the prefill, the second for
//     the prefill itself: what the two took beyond two decode steps is the prefill's. Neighbours further out
//     tell a decode step's time.
#pragma once

#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/served/servable_load.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

// One measured time and the batches that took it.
struct MeasuredStep {
  double seconds = 0;
  std::size_t first = 0, count = 1;  // positions in the log
  double predicted = 0;              // seconds of the run's counterpart; 0: none
};
std::vector<MeasuredStep> decode_steps(const std::vector<MeasuredBatch>& batches);
std::vector<MeasuredStep> prefill_steps(const std::vector<MeasuredBatch>& batches);

// The same with their counterparts in the run. That of a decode batch is the run's decode step of as many
// requests whose KV tokens are nearest; of a prefill the one of as many new requests whose tokens are, where
// they are within 2 %.
std::vector<MeasuredStep> predicted_decode_steps(const std::vector<MeasuredBatch>& batches,
                                                 const std::vector<ServedStep>& steps);
std::vector<MeasuredStep> predicted_prefill_steps(const std::vector<MeasuredBatch>& batches,
                                                  const std::vector<ServedStep>& steps);
// Their ratios.
proto::StepComparison compare(const char* mode, const std::vector<MeasuredStep>& predicted);

// At most `points` points; of more, the longest step of each interval stays.
proto::BatchTimeline measured_timeline(const std::vector<MeasuredBatch>& batches, std::size_t points);
proto::BatchTimeline served_timeline(const std::vector<ServedStep>& steps, std::size_t points);

// `ratios`: predicted / measured, in any order. All 0 where there are none.
proto::ErrorFigures error_figures(const std::vector<double>& ratios);

}  // namespace tpsim::launch
