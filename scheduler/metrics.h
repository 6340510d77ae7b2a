// What a run measured, in the terms of SGLang's serving benchmark (bench_serving.py): TTFT, TPOT =
// (latency - TTFT) / (output tokens - 1), ITL, end-to-end latency, throughputs over the whole duration.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/records.h"
#include "scheduler/weighted_samples.h"

namespace tpsim::scheduler {

class RunMetrics {
 public:
  // `goodput`: what a good request meets. `passes_overlap`: of pipeline stages; the timeline counts the time
  // that steps share once.
  explicit RunMetrics(const ServiceLevels& goodput = {}, bool passes_overlap = false)
      : goodput_(goodput), passes_overlap_(passes_overlap) {}

  void on_step(const StepRecord& step, double gpu_seconds);
  void on_inter_token(double gap, std::uint32_t count) { itl_.add(gap, count); }
  void on_request(const RequestRecord& record);
  // Fills the scheduler part of the report. `end`: time of the last event, seconds.
  void write(double end, proto::RunReport& report);

  std::uint64_t finished() const { return completed_ + rejected_ + cancelled_; }
  std::uint64_t steps() const { return steps_; }

  auto state() {
    return std::tie(bucket_seconds_, buckets_, ttft_, tpot_, itl_, e2e_, completed_, rejected_, cancelled_,
                    unfinished_, good_, input_tokens_, output_tokens_, prompt_tokens_, hit_tokens_, images_,
                    image_tokens_, steps_, prefill_steps_, decode_steps_, mixed_steps_, replayed_steps_,
                    gpu_seconds_, latency_sum_, last_finish_, last_arrival_, peak_usage_, covered_until_);
  }

 private:
  // Mean of the state over [start, start + width) of the run's clock.
  struct Bucket {
    double seconds = 0;  // covered by steps or idle time
    double queue = 0;    // integrals over time
    double running = 0;
    double kv_usage = 0;
    double prompt_tokens = 0;
    double hit_tokens = 0;
    double prefill_tokens = 0;
    double decode_tokens = 0;
  };
  Bucket& bucket_at(double time);
  void write_timeline(double end, proto::RunReport& report) const;

  static constexpr std::size_t kBuckets = 256;
  double bucket_seconds_ = 0.125;
  std::vector<Bucket> buckets_;

  WeightedSamples ttft_, tpot_, itl_, e2e_;
  const ServiceLevels goodput_;
  const bool passes_overlap_;
  std::uint64_t completed_ = 0, rejected_ = 0, cancelled_ = 0, unfinished_ = 0, good_ = 0;
  std::uint64_t input_tokens_ = 0, output_tokens_ = 0;
  std::uint64_t prompt_tokens_ = 0, hit_tokens_ = 0;
  std::uint64_t images_ = 0, image_tokens_ = 0;
  std::uint64_t steps_ = 0, prefill_steps_ = 0, decode_steps_ = 0, mixed_steps_ = 0;
  std::uint64_t replayed_steps_ = 0;  // decode steps of a captured graph
  double gpu_seconds_ = 0;
  double latency_sum_ = 0;
  double last_finish_ = 0;
  double last_arrival_ = 0;
  std::array<double, kvcache::kPools> peak_usage_ = {};
  double covered_until_ = 0;  // by steps
};

}  // namespace tpsim::scheduler
