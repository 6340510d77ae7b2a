#include "scheduler/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

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
  const double usage = step.pools[kvcache::kKvPool].usage();
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
  report.set_gpu_busy_fraction(std::min(1.0, rate(gpu_seconds_)));  // a last dropped pass may outlast the run
  if (goodput_.any()) {
    const std::uint64_t all = completed_ + rejected_ + cancelled_ + unfinished_;
    report.set_request_goodput(rate(static_cast<double>(good_)));
    report.set_goodput_share(all > 0 ? static_cast<double>(good_) / static_cast<double>(all) : 0);
  }
  write_timeline(end, report);
  ttft_.histogram(kMilli, *report.mutable_ttft_histogram());
  tpot_.histogram(kMilli, *report.mutable_tpot_histogram());
  itl_.histogram(kMilli, *report.mutable_itl_histogram());
}

}  // namespace tpsim::scheduler
