// Samples that come in groups of equal values, and what a report says of them.
//
// Every value is kept up to kMostGroups groups; figures are then those of the list of all samples. Of more,
// groups of equal values are put together first, and where that leaves too many they are compressed: values
// that agree in sign, exponent and the first 11 bits after the point share a bucket, whose width is at most
// 2^-11 of its values. Mean, deviation, number, least and greatest value stay those of the samples;
// percentiles lie within kPercentileError of theirs. Memory is then bounded by the number of binades that
// values come from (2,048 buckets each), not by the number of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::scheduler {

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

}  // namespace tpsim::scheduler
