#include "scheduler/weighted_samples.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tpsim::scheduler {
namespace {

// Ascending with the value.
std::uint64_t bucket_of(double value) {
  constexpr int kDropped = 52 - 11;  // bits of the significand
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  return ((bits & kSign) != 0 ? ~bits : bits | kSign) >> kDropped;
}

}  // namespace

void WeightedSamples::Moments::add(double value, double weight) {
  count += weight;
  const double distance = value - mean;
  mean += distance * (weight / count);
  squares += weight * distance * (value - mean);
}

void WeightedSamples::merge_equal() {
  std::ranges::sort(groups_, {}, &Group::value);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < groups_.size(); ++i) {
    if (groups_[i].value == groups_[kept].value) {
      groups_[kept].count += groups_[i].count;
    } else {
      groups_[++kept] = groups_[i];
    }
  }
  if (!groups_.empty()) groups_.resize(kept + 1);
}

void WeightedSamples::make_room() {
  merge_equal();
  // Merging again soon would cost more than it gives.
  if (!compressed() && groups_.size() <= most_groups_ / 2) return;
  compress();
}

// Adds the groups, which are in order, to the buckets.
void WeightedSamples::compress() {
  std::vector<Bucket> all;
  all.reserve(buckets_.size() + 1024);
  auto old = buckets_.begin();
  for (const Group& group : groups_) {
    const auto weight = static_cast<double>(group.count);
    moments_.add(group.value, weight);
    max_ = std::max(max_, group.value);
    const std::uint64_t key = bucket_of(group.value);
    for (; old != buckets_.end() && old->key <= key; ++old) all.push_back(*old);
    if (all.empty() || all.back().key != key) all.push_back({key, 0, 0});
    all.back().count += group.count;
    all.back().sum += group.value * weight;
  }
  all.insert(all.end(), old, buckets_.end());
  buckets_ = std::move(all);
  groups_.clear();
  // What comes next is compressed in small helpings.
  constexpr std::size_t kHelping = std::size_t{1} << 16;
  limit_ = std::min(most_groups_, kHelping);
  groups_.shrink_to_fit();
}

void WeightedSamples::seal() {
  if (compressed()) {
    merge_equal();
    compress();
    for (const Bucket& bucket : buckets_)
      groups_.push_back({bucket.sum / static_cast<double>(bucket.count), bucket.count});
  } else {
    std::ranges::sort(groups_, {}, &Group::value);
    if (!groups_.empty()) max_ = groups_.back().value;
  }
  cumulative_.clear();
  cumulative_.reserve(groups_.size());
  count_ = 0;
  double sum = 0;
  for (const Group& group : groups_) {
    count_ += group.count;
    cumulative_.push_back(count_);
    sum += group.value * static_cast<double>(group.count);
  }
  if (count_ > 0) mean_ = compressed() ? moments_.mean : sum / static_cast<double>(count_);
}

double WeightedSamples::stddev() const {
  if (count_ == 0) return 0;
  if (compressed()) return std::sqrt(std::max(0.0, moments_.squares / moments_.count));
  double sum = 0;
  for (const Group& group : groups_) {
    sum += (group.value - mean_) * (group.value - mean_) * static_cast<double>(group.count);
  }
  return std::sqrt(sum / static_cast<double>(count_));
}

double WeightedSamples::at_rank(std::uint64_t rank) const {
  const auto group = std::upper_bound(cumulative_.begin(), cumulative_.end(), rank);
  return groups_[static_cast<std::size_t>(group - cumulative_.begin())].value;
}

double WeightedSamples::percentile(double q) const {
  if (count_ == 0) return 0;
  const double position = static_cast<double>(count_ - 1) * q / 100;
  const double floor = std::floor(position);
  const auto rank = static_cast<std::uint64_t>(floor);
  const double low = at_rank(rank);
  if (rank + 1 >= count_) return low;
  return low + (at_rank(rank + 1) - low) * (position - floor);
}

void WeightedSamples::histogram(double scale, proto::Histogram& out) const {
  if (count_ == 0) return;
  // 24 bins per decade: narrow enough for two backends 10 % apart to look different.
  constexpr double kBinsPerDecade = 24;
  const double lowest = std::max(groups_.front().value * scale, 1e-3);
  int bin = static_cast<int>(std::floor(std::log10(lowest) * kBinsPerDecade));
  std::size_t next = 0;
  while (next < groups_.size()) {
    const double edge = std::pow(10.0, (bin + 1) / kBinsPerDecade);
    std::uint64_t in_bin = 0;
    while (next < groups_.size() && groups_[next].value * scale < edge) in_bin += groups_[next++].count;
    out.add_upper_ms(edge);
    out.add_fraction(static_cast<double>(in_bin) / static_cast<double>(count_));
    ++bin;
  }
}

}  // namespace tpsim::scheduler
