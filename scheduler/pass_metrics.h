// What the passes of one replica come to. Whoever runs the replica adds them up, in their order; a run adds
// up its replicas, in theirs: threads and processes then change no digit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "kvcache/pools/pool.h"
#include "proto/report.pb.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

// Threads have neighbours.
class alignas(64) PassMetrics {
 public:
  // `passes_overlap`: of pipeline stages; the timeline counts the time that passes share once.
  explicit PassMetrics(bool passes_overlap = false) : passes_overlap_(passes_overlap) {}

  // `gpu_seconds`: of the pass.
  void on_step(const StepRecord& step, double gpu_seconds);
  // A request got a token `gap` seconds after the one before. Counted where the last gap was another one.
  void count_gap(double gap) {
    gaps_ += gap != last_gap_ ? 1 : 0;
    last_gap_ = gap;
  }
  std::uint64_t gaps() const { return gaps_; }
  // Those of another replica, too.
  void add(const PassMetrics& other);
  // Fills the part of the report that is of passes. `end`: time of the last event; `duration`: of the run,
  // seconds. `replicas`: that were added up, whose usage of pools is averaged.
  void write(double end, double duration, double replicas, proto::RunReport& report) const;
  void write(proto::ReplicaReport& report) const;

  std::uint64_t steps() const { return steps_; }

  auto state() {
    return std::tie(bucket_seconds_, buckets_, steps_, prefill_steps_, decode_steps_, mixed_steps_,
                    replayed_steps_, gpu_seconds_, peak_usage_, covered_until_, gaps_, last_gap_);
  }

 private:
  // Integrals of the state over [start, start + width) of the run's clock.
  struct Bucket {
    double queue = 0;
    double running = 0;
    double kv_usage = 0;
    double prompt_tokens = 0;
    double hit_tokens = 0;
    double prefill_tokens = 0;
    double decode_tokens = 0;

    void add(const Bucket& other);
  };
  Bucket& bucket_at(double time);
  void coarsen();

  static constexpr std::size_t kBuckets = 256;
  bool passes_overlap_;
  double bucket_seconds_ = 0.125;
  std::vector<Bucket> buckets_;
  std::uint64_t steps_ = 0, prefill_steps_ = 0, decode_steps_ = 0, mixed_steps_ = 0;
  std::uint64_t replayed_steps_ = 0;  // decode steps of a captured graph
  double gpu_seconds_ = 0;
  std::array<double, kvcache::kPools> peak_usage_ = {};
  double covered_until_ = 0;  // by passes
  std::uint64_t gaps_ = 0;
  double last_gap_ = -1;
};

}  // namespace tpsim::scheduler
