// What a run leaves behind: the scheduler's part of its report, and the records of its requests and steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/fleet.h"
#include "scheduler/load.h"
#include "scheduler/metrics.h"
#include "scheduler/pass_metrics.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"
#include "scheduler/req.h"
#include "scheduler/speculation.h"

namespace tpsim::scheduler {

// As `replica` has it; `time`: when its client saw its end. Its spans are the request's.
RequestRecord record_of(const Req& req, RequestState state, double time, std::uint32_t replica);

// What a replica counted.
struct ReplicaFigures {
  proto::RunReport report;  // as it writes it, with retractions and evicted tokens
  double now = 0;
  std::vector<std::uint64_t> accepted;  // accept_histogram()

  // For other processes (proto/base/archive.h).
  template <typename Archive>
  void serialize(Archive& archive) {
    std::string bytes = Archive::kReads ? "" : report.SerializeAsString();
    archive(bytes, now, accepted);
    if constexpr (Archive::kReads) report.ParseFromString(bytes);
  }
};
ReplicaFigures figures_of(const Replica& replica);

// Records go to an observer as they come.
class RunRecorder {
 public:
  // All references must outlive it.
  RunRecorder(const Fleet& fleet, const LoadConfig& load, const Offered& offered, RunObserver& observer);

  // What happens between the two is a warm-up, of which nothing is kept; nor of what schedulers counted.
  void begin_warm_up() { warming_up_ = true; }
  void end_warm_up(const std::vector<ReplicaFigures>& replicas);
  bool warming_up() const { return warming_up_; }

  // As ReplicaEvents has them, by whoever runs the replica: several threads at once may, each with samples of
  // its own, below `threads` of the fleet.
  void on_inter_token(std::uint32_t replica, std::uint32_t thread, double gap, std::uint32_t count) {
    if (warming_up_) return;
    passes_[replica].count_gap(gap);
    itl_[thread].add(gap, count);
  }
  void count_step(const StepRecord& record, double gpu_seconds) {
    if (!warming_up_) passes_[record.replica].on_step(record, gpu_seconds);
  }
  // For the observer, in the order of the run.
  void on_step(const StepRecord& record) {
    if (!warming_up_) observer_.on_step(record);
  }
  // `of_server`: before what lies between its server and the client.
  void on_finished(const RequestRecord& of_server);
  // A replica begins anew: what it counted is kept. Its requests are not recorded by this.
  void retire(std::uint32_t number, const Replica& replica);

  // At `time`, of `total` requests.
  Progress progress(double time, std::uint64_t total) const;
  // What the replicas of this process counted, for another's recorder: their passes one by one, and the
  // samples of all.
  PassMetrics& passes(std::uint32_t replica) { return passes_[replica]; }
  WeightedSamples& samples() { return itl_.front(); }
  // The samples of all threads, in samples(): compressed where all processes have so many gaps().
  void put_samples_together(std::uint64_t gaps);
  std::uint64_t gaps() const;
  // Of all that was recorded. Nothing may be recorded afterwards. REQUIRES: at least one replica.
  proto::RunReport report(const std::vector<ReplicaFigures>& replicas, bool stopped_early);

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(metrics_, overload_, warmup_retractions_, warmup_evicted_tokens_);
    for (PassMetrics& passes : passes_) archive(passes);
    for (WeightedSamples& samples : itl_) archive(samples);
  }

 private:
  void count_accepted(const std::vector<std::uint64_t>& histogram);

  const SpeculationConfig& speculation_;
  const Offered& offered_;
  RunObserver& observer_;
  RunMetrics metrics_;
  std::vector<PassMetrics> passes_;   // of each replica
  std::vector<WeightedSamples> itl_;  // of each thread
  OverloadWatch overload_;
  const double first_token_seconds_;
  std::uint64_t warmup_retractions_ = 0;
  std::uint64_t warmup_evicted_tokens_ = 0;
  std::vector<proto::ReplicaReport> of_replicas_;  // where there are several
  std::optional<proto::RunReport> retired_;        // of replicas that began anew, without their pools
  std::vector<std::uint64_t> accepted_;            // accept_histogram() of all
  bool warming_up_ = false;
};

}  // namespace tpsim::scheduler
