// A measured load that tpsim can serve: its flags and requests resolved once, to be served as often as its
// prices are asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "proto/report.pb.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// One step of the run, in its order. Seconds.
struct ServedStep {
  bool decode = false;
  bool prefill = false;  // both: a mixed step
  std::uint32_t running = 0;
  std::uint64_t kv_tokens = 0;  // of running requests
  std::uint32_t new_seqs = 0;
  std::uint32_t new_tokens = 0;
  double end = 0;
  // From the end of the step before it, where requests were running then; else the time on the GPU.
  double seconds = 0;
};

// What is kept of a served load for its comparison with the measurement.
class LoadRecords : public scheduler::RunObserver {
 public:
  explicit LoadRecords(const std::atomic<bool>& stop) : stop_(stop) {}

  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord& record) override;
  bool on_progress(const scheduler::Progress&) override { return !stop_; }

  const std::vector<ServedStep>& steps() const { return steps_; }
  bool stopped() const { return stop_; }
  // Requests that were refused.
  std::uint64_t rejected() const { return rejected_; }
  std::uint64_t cached_tokens() const { return cached_tokens_; }
  // Of the completed requests.
  MeasuredFigures figures() const { return sums_.figures(); }
  const CachedTokens& cached() const { return cached_; }

 private:
  const std::atomic<bool>& stop_;
  std::vector<ServedStep> steps_;
  std::uint32_t running_ = 0;  // after the last step
  std::uint64_t rejected_ = 0;
  std::uint64_t cached_tokens_ = 0;
  FigureSums sums_;
  CachedTokens cached_;
};

class ServableLoad {
 public:
  // `flags`: load.flags, or others in their place. Throws UserError for what cannot be asked; what
  // load.refusal says is the caller's.
  ServableLoad(const MeasuredLoad& load, const std::vector<std::string>& flags);

  const ServerArgs& args() const { return args_; }
  const Deployment& deployment() const { return deployment_; }
  const scheduler::StreamedWorkload& workload() const { return *workload_; }
  // Serves the load on `deployment`: deployment(), or a copy with other prices. May be called by several
  // threads at once. Throws UserError where requests of the load do not fit.
  proto::RunReport serve(const Deployment& deployment, LoadRecords& records) const;

 private:
  ServerArgs args_;
  Deployment deployment_;
  std::shared_ptr<const scheduler::StreamedWorkload> workload_;
};

}  // namespace tpsim::launch
