// What a run measured, in the terms of SGLang's serving benchmark (bench_serving.py): TTFT, TPOT =
// (latency - TTFT) / (output tokens - 1), ITL, end-to-end latency, throughputs over the whole duration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/pass_metrics.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

// Samples that come in groups of equal values, and what a report says of them.
//
// Every value is kept up to kMostGroups groups; figures are then those of the list of all samples. Of more,
// groups of equal values are put together first, and where that leaves too many they are compressed: values
// that agree in sign, exponent and the first 11 bits after the point share a bucket, whose width is at most
// 2^-11 of its values. Mean, deviation, number, least and greatest value stay those of the samples (to
// 2^-60 each); percentiles lie within kPercentileError of theirs. Memory is then bounded by the number of
// binades that values come from (2,048 buckets each), not by the number of samples.
class alignas(64) WeightedSamples {  // threads have neighbours
 public:
  static constexpr std::size_t kMostGroups = std::size_t{1} << 20;
  static constexpr double kPercentileError = 0x1p-11;  // relative, where compressed()

  // `most_groups`: that are kept before they are compressed.
  explicit WeightedSamples(std::size_t most_groups = kMostGroups) : most_groups_(most_groups) {}

  // REQUIRES: value is finite, and below 2^23 where there are many; count > 0.
  void add(double value, std::uint64_t count) {
    if (!groups_.empty() && groups_.back().value == value) {
      groups_.back().count += count;
    } else {
      groups_.push_back({value, count});
      if (groups_.size() >= limit_) make_room();
    }
  }
  // Where samples were given to any number of these, one by one: each settles, all of them compressed or
  // none, and one takes over the others. Figures then depend on no order, to the last digit. REQUIRES: with
  // `compressed` false, none is yet.
  void settle(bool compressed);
  void merge(const WeightedSamples& other);
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
  using Fixed = __int128;  // in units of 2^-60, squares of 2^-44
  // Of the samples that are in buckets_: whole numbers, whose sums have no order.
  struct Moments {
    Fixed sum = 0, squares = 0;
    std::uint64_t count = 0;
    Fixed add(double value, std::uint64_t weight);  // returns what it adds to the sum
  };
  // Samples of one bucket. Their sum is kept, so that the mean stands for them.
  struct Bucket {
    std::uint64_t key;
    std::uint64_t count;
    Fixed sum;
  };

  void make_room();
  void merge_equal();
  void put_equal_together();  // of groups that are sorted
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
  // `goodput`: what a good request meets. `replicas`: whose requests it adds up, and whose usage of pools it
  // averages.
  explicit RunMetrics(const ServiceLevels& goodput = {}, std::uint32_t replicas = 1)
      : goodput_(goodput), replicas_(replicas) {}

  void on_request(const RequestRecord& record);
  // Fills the scheduler part of the report. `end`: time of the last event, seconds. `passes`, `itl`: of all
  // replicas; the latter are sealed.
  void write(double end, const PassMetrics& passes, WeightedSamples& itl, proto::RunReport& report);

  std::uint64_t finished() const { return completed_ + rejected_ + cancelled_ + lost_; }

  auto state() {
    return std::tie(ttft_, tpot_, e2e_, completed_, rejected_, cancelled_, unfinished_, good_, input_tokens_,
                    output_tokens_, prompt_tokens_, hit_tokens_, host_hit_tokens_, storage_hit_tokens_,
                    images_, image_tokens_, latency_sum_, last_finish_, last_arrival_);
  }

 private:
  WeightedSamples ttft_, tpot_, e2e_;
  const ServiceLevels goodput_;
  const double replicas_;
  std::uint64_t completed_ = 0, rejected_ = 0, cancelled_ = 0, unfinished_ = 0, good_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t input_tokens_ = 0, output_tokens_ = 0;
  std::uint64_t prompt_tokens_ = 0, hit_tokens_ = 0;
  std::uint64_t host_hit_tokens_ = 0, storage_hit_tokens_ = 0;  // of hit_tokens_
  std::uint64_t images_ = 0, image_tokens_ = 0;
  double latency_sum_ = 0;
  double last_finish_ = 0;
  double last_arrival_ = 0;
};

}  // namespace tpsim::scheduler
