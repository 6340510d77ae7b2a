// What a run measured, in the terms of SGLang's serving benchmark (bench_serving.py): TTFT, TPOT =
// (latency - TTFT) / (output tokens - 1), ITL, end-to-end latency, throughputs over the whole duration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

// Samples that come in groups of equal values, and what a report says of them.
//
// Every value is kept up to kMostGroups groups; figures are then those of the list of all samples. Of more,
// groups of equal values are put together first, and where that leaves too many they are compressed: values
// that agree in sign, exponent and the first 11 bits after the point share a bucket, whose width is at most
// 2^-11 of its values. Mean, deviation, number, least and greatest value stay those of the samples;
// percentiles lie within kPercentileError of theirs. Memory is then bounded by the number of binades that
// values come from (2,048 buckets each), not by the number of samples.
class WeightedSamples {
 public:
  static constexpr std::size_t kMostGroups = std::size_t{1} << 20;
  static constexpr double kPercentileError = 0x1p-11;  // relative, where compressed()

  // `most_groups`: that are kept before they are compressed.
  explicit WeightedSamples(std::size_t most_groups = kMostGroups) : most_groups_(most_groups) {}

  // REQUIRES: value is finite, count > 0.
  void add(double value, std::uint64_t count) {
    if (!groups_.empty() && groups_.back().value == value) {
      groups_.back().count += count;
    } else {
      groups_.push_back({value, count});
      if (groups_.size() >= limit_) make_room();
    }
  }
  // Sorts; call once, before the readers.
  void seal();
  std::uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  double stddev() const;  // of the population, as numpy's std
  // Linear interpolation between the closest ranks, as numpy's percentile. q in [0, 100]; 0 of no samples.
  double percentile(double q) const;
  double max() const { return groups_.empty() ? 0 : max_; }
  // Whether buckets stand for the samples.
  bool compressed() const { return moments_.count > 0; }
  // Shares of the samples in bins whose edges grow geometrically; edges in the samples' unit x scale.
  void histogram(double scale, proto::Histogram& out) const;

  // State of a checkpoint (proto/base/archive.h). Before seal().
  auto state() { return std::tie(limit_, groups_, buckets_, moments_, max_); }

 private:
  struct Group {
    double value;
    std::uint64_t count;
  };
  // Number, mean and sum of squared distances from it (Welford), of the samples that are in buckets_.
  struct Moments {
    double count = 0, mean = 0, squares = 0;
    void add(double value, double weight);
  };
  // Samples of one bucket. Their sum is kept, so that the mean stands for them.
  struct Bucket {
    std::uint64_t key;
    std::uint64_t count;
    double sum;
  };

  void make_room();
  void merge_equal();
  void compress();
  double at_rank(std::uint64_t rank) const;

  std::size_t most_groups_;
  std::size_t limit_ = most_groups_;  // of groups_, before room is made
  std::vector<Group> groups_;         // since they were compressed last; sealed: all
  std::vector<Bucket> buckets_;       // ascending by key
  Moments moments_;
  std::vector<std::uint64_t> cumulative_;
  std::uint64_t count_ = 0;
  double mean_ = 0;
  double max_ = 0;
};

class RunMetrics {
 public:
  // `goodput`: what a good request meets. `passes_overlap`: of pipeline stages; the timeline counts the time
  // that steps share once. `replicas`: whose requests it adds up, and whose usage of pools it averages.
  explicit RunMetrics(const ServiceLevels& goodput = {}, bool passes_overlap = false,
                      std::uint32_t replicas = 1)
      : goodput_(goodput), passes_overlap_(passes_overlap), replicas_(replicas) {}

  void on_step(const StepRecord& step, double gpu_seconds);
  void on_inter_token(double gap, std::uint32_t count) { itl_.add(gap, count); }
  void on_request(const RequestRecord& record);
  // Fills the scheduler part of the report. `end`: time of the last event, seconds.
  void write(double end, proto::RunReport& report);

  std::uint64_t finished() const { return completed_ + rejected_ + cancelled_ + lost_; }
  std::uint64_t steps() const { return steps_; }

  auto state() {
    return std::tie(bucket_seconds_, buckets_, ttft_, tpot_, itl_, e2e_, completed_, rejected_, cancelled_,
                    unfinished_, good_, input_tokens_, output_tokens_, prompt_tokens_, hit_tokens_,
                    host_hit_tokens_, storage_hit_tokens_, images_, image_tokens_, steps_, prefill_steps_,
                    decode_steps_, mixed_steps_, replayed_steps_, gpu_seconds_, latency_sum_, last_finish_,
                    last_arrival_, peak_usage_, covered_until_);
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
  const double replicas_;
  std::uint64_t completed_ = 0, rejected_ = 0, cancelled_ = 0, unfinished_ = 0, good_ = 0;
  std::uint64_t lost_ = 0;
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
  std::uint64_t host_hit_tokens_ = 0, storage_hit_tokens_ = 0;  // of hit_tokens_
  double covered_until_ = 0;                                    // by steps
};

}  // namespace tpsim::scheduler
