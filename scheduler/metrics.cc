#include "scheduler/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "proto/versions.h"

namespace tpsim::scheduler {
namespace {

constexpr double kMilli = 1e3;

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

RunMetrics::Bucket& RunMetrics::bucket_at(double time) {
  auto index = static_cast<std::size_t>(time / bucket_seconds_);
  while (index >= kBuckets) {
    // Pairs are merged: the timeline keeps at most kBuckets points however long the run is.
    for (std::size_t i = 0; i < buckets_.size(); i += 2) {
      Bucket merged = buckets_[i];
      if (i + 1 < buckets_.size()) {
        const Bucket& other = buckets_[i + 1];
        merged.queue += other.queue;
        merged.running += other.running;
        merged.kv_usage += other.kv_usage;
        merged.prompt_tokens += other.prompt_tokens;
        merged.hit_tokens += other.hit_tokens;
        merged.prefill_tokens += other.prefill_tokens;
        merged.decode_tokens += other.decode_tokens;
      }
      buckets_[i / 2] = merged;
    }
    buckets_.resize((buckets_.size() + 1) / 2);
    bucket_seconds_ *= 2;
    index = static_cast<std::size_t>(time / bucket_seconds_);
  }
  if (index >= buckets_.size()) buckets_.resize(index + 1);
  return buckets_[index];
}

void RunMetrics::on_step(const StepRecord& step, double gpu_seconds) {
  ++steps_;
  prefill_steps_ += step.forward_mode == proto::EXTEND ? 1 : 0;
  decode_steps_ += step.forward_mode == proto::DECODE || step.forward_mode == proto::TARGET_VERIFY ? 1 : 0;
  mixed_steps_ += step.forward_mode == proto::MIXED ? 1 : 0;
  replayed_steps_ += step.capture_bucket > 0 ? 1 : 0;
  gpu_seconds_ += gpu_seconds;
  const double usage = step.pools[kvcache::kKvPool].usage() / replicas_;
  for (std::size_t i = 0; i < step.pools.size(); ++i)
    peak_usage_[i] = std::max(peak_usage_[i], step.pools[i].usage());

  Bucket& first = bucket_at(step.start_time);
  first.prompt_tokens += step.cached_tokens + step.extend_tokens;
  first.hit_tokens += step.cached_tokens;
  first.prefill_tokens += step.extend_tokens;
  first.decode_tokens += step.decode_tokens;
  // Of passes that overlap (pipeline stages), what the one before did not cover.
  double from = passes_overlap_ ? std::max(step.start_time, covered_until_) : step.start_time;
  const double end = step.start_time + step.step_time;
  covered_until_ = std::max(covered_until_, end);
  while (from < end) {
    Bucket& bucket = bucket_at(from);
    const double boundary = (std::floor(from / bucket_seconds_) + 1) * bucket_seconds_;
    const double to = boundary > from ? std::min(end, boundary) : end;
    bucket.queue += step.waiting * (to - from);
    bucket.running += step.running * (to - from);
    bucket.kv_usage += usage * (to - from);
    from = to;
  }
}

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

void RunMetrics::write_timeline(double end, proto::RunReport& report) const {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const double start = static_cast<double>(i) * bucket_seconds_;
    const double width = std::min(bucket_seconds_, end - start);
    if (width <= 0) break;
    proto::TimelinePoint& point = *report.add_timeline();
    point.set_time(start);
    point.set_queue(bucket.queue / width);
    point.set_running(bucket.running / width);
    point.set_kv_usage(bucket.kv_usage / width);
    point.set_cache_hit_rate(bucket.prompt_tokens > 0 ? bucket.hit_tokens / bucket.prompt_tokens : 0);
    point.set_prefill_tokens_per_second(bucket.prefill_tokens / width);
    point.set_decode_tokens_per_second(bucket.decode_tokens / width);
  }
}

void RunMetrics::write(double end, proto::RunReport& report) {
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
  write_times("itl", itl_, report);
  write_times("e2e_latency", e2e_, report);
  report.set_max_itl_ms(itl_.max() * kMilli);
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
  report.set_peak_kv_usage(peak_usage_[kvcache::kKvPool]);
  report.set_peak_swa_usage(peak_usage_[kvcache::kWindowPool]);
  report.set_peak_state_usage(peak_usage_[kvcache::kStatePool]);
  report.set_steps(steps_);
  report.set_prefill_steps(prefill_steps_);
  report.set_decode_steps(decode_steps_);
  report.set_mixed_steps(mixed_steps_);
  report.set_replayed_steps(replayed_steps_);
  report.set_replayed_fraction(
      decode_steps_ > 0 ? static_cast<double>(replayed_steps_) / static_cast<double>(decode_steps_) : 0);
  report.set_gpu_busy_fraction(
      std::min(1.0, rate(gpu_seconds_) / replicas_));  // a last dropped pass may outlast the run
  if (goodput_.any()) {
    const std::uint64_t all = completed_ + rejected_ + cancelled_ + lost_ + unfinished_;
    report.set_request_goodput(rate(static_cast<double>(good_)));
    report.set_goodput_share(all > 0 ? static_cast<double>(good_) / static_cast<double>(all) : 0);
  }
  write_timeline(end, report);
  ttft_.histogram(kMilli, *report.mutable_ttft_histogram());
  tpot_.histogram(kMilli, *report.mutable_tpot_histogram());
  itl_.histogram(kMilli, *report.mutable_itl_histogram());
}

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
