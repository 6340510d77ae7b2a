#include "scheduler/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "proto/versions.h"

namespace tpsim::scheduler {
namespace {

constexpr double kMilli = 1e3;
// Of WeightedSamples::Fixed; of squares, which have to hold 2^36 samples of 2^23 seconds.
constexpr double kUnits = 0x1p60, kSquareUnits = 0x1p44;

// Of a sum in such units.
double mean_of(__int128 sum, std::uint64_t count) {
  return static_cast<double>(sum) / kUnits / static_cast<double>(count);
}

// Fields "mean_NAME_ms" and the like.
void write_times(std::string_view name, WeightedSamples& seconds, proto::RunReport& report) {
  seconds.seal();
  const auto set = [&](std::string_view what, double value) {
    const std::string field = fmt::format("{}_{}_ms", what, name);
    report.GetReflection()->SetDouble(&report, report.GetDescriptor()->FindFieldByName(field),
                                      value * kMilli);
  };
  set("mean", seconds.mean());
  set("median", seconds.percentile(50));
  for (const int percent : {90, 95, 99}) set(fmt::format("p{}", percent), seconds.percentile(percent));
  set("std", seconds.stddev());
  if (seconds.compressed()) report.set_percentile_error(WeightedSamples::kPercentileError);
}

// Ascending with the value.
std::uint64_t bucket_of(double value) {
  constexpr int kDropped = 52 - 11;  // bits of the significand
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  return ((bits & kSign) != 0 ? ~bits : bits | kSign) >> kDropped;
}

}  // namespace

void RunMetrics::on_request(const RequestRecord& record) {
  last_arrival_ = std::max(last_arrival_, record.arrival_time);
  if (record.state == RequestState::kRejected) {
    ++rejected_;
    return;
  }
  // To SGLang's benchmark a request that failed: none of its figures count.
  if (record.state == RequestState::kCancelled) {
    ++cancelled_;
    return;
  }
  if (record.state == RequestState::kFailed) {
    ++lost_;
    return;
  }
  if (record.state != RequestState::kCompleted) {
    ++unfinished_;
    return;
  }
  ++completed_;
  good_ += goodput_.met_by(record) ? 1 : 0;
  input_tokens_ += record.input_tokens;
  output_tokens_ += record.output_tokens;
  prompt_tokens_ += record.input_tokens;
  hit_tokens_ += record.cached_tokens;
  host_hit_tokens_ += record.cached_host;
  storage_hit_tokens_ += record.cached_storage;
  images_ += record.images;
  image_tokens_ += record.image_tokens;
  ttft_.add(record.ttft(), 1);
  e2e_.add(record.e2e_latency(), 1);
  if (record.output_tokens > 1) tpot_.add(record.tpot(), 1);
  latency_sum_ += record.e2e_latency();
  last_finish_ = std::max(last_finish_, record.finish_time);
}

void RunMetrics::write(double end, const PassMetrics& passes, WeightedSamples& itl,
                       proto::RunReport& report) {
  const double duration = report.stopped_early() ? end : last_finish_;
  const auto rate = [duration](double amount) { return duration > 0 ? amount / duration : 0; };
  report.set_version(kRunReportVersion);
  report.set_last_arrival_time(last_arrival_);
  report.set_completed(completed_);
  report.set_failed(rejected_);
  if (cancelled_ > 0) report.set_cancelled(cancelled_);
  if (lost_ > 0) report.set_lost(lost_);
  report.set_duration(duration);
  report.set_total_input_tokens(input_tokens_);
  report.set_total_output_tokens(output_tokens_);
  report.set_request_throughput(rate(static_cast<double>(completed_)));
  report.set_input_throughput(rate(static_cast<double>(input_tokens_)));
  report.set_output_throughput(rate(static_cast<double>(output_tokens_)));
  report.set_total_throughput(rate(static_cast<double>(input_tokens_ + output_tokens_)));
  write_times("ttft", ttft_, report);
  write_times("tpot", tpot_, report);
  write_times("itl", itl, report);
  write_times("e2e_latency", e2e_, report);
  report.set_max_itl_ms(itl.max() * kMilli);
  report.set_concurrency(rate(latency_sum_));
  report.set_cache_hit_rate(
      prompt_tokens_ > 0 ? static_cast<double>(hit_tokens_) / static_cast<double>(prompt_tokens_) : 0);
  if (report.host_pool_tokens() > 0) {
    report.set_cached_device_tokens(hit_tokens_ - host_hit_tokens_ - storage_hit_tokens_);
    report.set_cached_host_tokens(host_hit_tokens_);
    report.set_cached_storage_tokens(storage_hit_tokens_);
  }
  if (images_ > 0) {
    report.mutable_images()->set_images(images_);
    report.mutable_images()->set_image_tokens(image_tokens_);
  }
  passes.write(end, duration, replicas_, report);
  if (goodput_.any()) {
    const std::uint64_t all = completed_ + rejected_ + cancelled_ + lost_ + unfinished_;
    report.set_request_goodput(rate(static_cast<double>(good_)));
    report.set_goodput_share(all > 0 ? static_cast<double>(good_) / static_cast<double>(all) : 0);
  }
  ttft_.histogram(kMilli, *report.mutable_ttft_histogram());
  tpot_.histogram(kMilli, *report.mutable_tpot_histogram());
  itl.histogram(kMilli, *report.mutable_itl_histogram());
}

WeightedSamples::Fixed WeightedSamples::Moments::add(double value, std::uint64_t weight) {
  const auto fixed = [weight](double of, double units) {
    return static_cast<Fixed>(of * units + (of < 0 ? -0.5 : 0.5)) * static_cast<Fixed>(weight);
  };
  const Fixed added = fixed(value, kUnits);
  count += weight;
  sum += added;
  squares += fixed(value * value, kSquareUnits);
  return added;
}

void WeightedSamples::merge_equal() {
  std::ranges::sort(groups_, {}, &Group::value);
  put_equal_together();
}

void WeightedSamples::put_equal_together() {
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
    const Fixed sum = moments_.add(group.value, group.count);
    max_ = std::max(max_, group.value);
    const std::uint64_t key = bucket_of(group.value);
    for (; old != buckets_.end() && old->key <= key; ++old) all.push_back(*old);
    if (all.empty() || all.back().key != key) all.push_back({key, 0, 0});
    all.back().count += group.count;
    all.back().sum += sum;
  }
  all.insert(all.end(), old, buckets_.end());
  buckets_ = std::move(all);
  groups_.clear();
  // What comes next is compressed in small helpings.
  constexpr std::size_t kHelping = std::size_t{1} << 16;
  limit_ = std::min(most_groups_, kHelping);
  groups_.shrink_to_fit();
}

void WeightedSamples::settle(bool compressed) {
  merge_equal();
  if (compressed) compress();
}

void WeightedSamples::merge(const WeightedSamples& other) {
  const auto middle = groups_.insert(groups_.end(), other.groups_.begin(), other.groups_.end());
  std::ranges::inplace_merge(groups_, middle, {}, &Group::value);
  put_equal_together();
  std::vector<Bucket> all;
  all.reserve(buckets_.size() + other.buckets_.size());
  std::ranges::merge(buckets_, other.buckets_, std::back_inserter(all), {}, &Bucket::key, &Bucket::key);
  buckets_.clear();
  for (const Bucket& bucket : all) {
    if (buckets_.empty() || buckets_.back().key != bucket.key) {
      buckets_.push_back(bucket);
      continue;
    }
    buckets_.back().count += bucket.count;
    buckets_.back().sum += bucket.sum;
  }
  moments_.count += other.moments_.count;
  moments_.sum += other.moments_.sum;
  moments_.squares += other.moments_.squares;
  max_ = std::max(max_, other.max_);
}

void WeightedSamples::seal() {
  if (compressed()) {
    merge_equal();
    compress();
    for (const Bucket& bucket : buckets_)
      groups_.push_back({mean_of(bucket.sum, bucket.count), bucket.count});
  } else {
    if (!std::ranges::is_sorted(groups_, {}, &Group::value)) std::ranges::sort(groups_, {}, &Group::value);
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
  if (count_ > 0) mean_ = compressed() ? mean_of(moments_.sum, count_) : sum / static_cast<double>(count_);
}

double WeightedSamples::stddev() const {
  if (count_ == 0) return 0;
  if (compressed()) {  // of a small difference
    const auto mean = [this](Fixed sum, double units) {
      return static_cast<long double>(sum) / units / count_;
    };
    const long double of = mean(moments_.sum, kUnits);
    return std::sqrt(std::max(0.0, static_cast<double>(mean(moments_.squares, kSquareUnits) - of * of)));
  }
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
