#include "scheduler/pass_metrics.h"

#include <algorithm>
#include <cmath>

namespace tpsim::scheduler {

void PassMetrics::Bucket::add(const Bucket& other) {
  queue += other.queue;
  running += other.running;
  kv_usage += other.kv_usage;
  prompt_tokens += other.prompt_tokens;
  hit_tokens += other.hit_tokens;
  prefill_tokens += other.prefill_tokens;
  decode_tokens += other.decode_tokens;
}

// Pairs are merged: the timeline keeps at most kBuckets points however long the run is.
void PassMetrics::coarsen() {
  for (std::size_t i = 0; i < buckets_.size(); i += 2) {
    Bucket merged = buckets_[i];
    if (i + 1 < buckets_.size()) merged.add(buckets_[i + 1]);
    buckets_[i / 2] = merged;
  }
  buckets_.resize((buckets_.size() + 1) / 2);
  bucket_seconds_ *= 2;
}

PassMetrics::Bucket& PassMetrics::bucket_at(double time) {
  auto index = static_cast<std::size_t>(time / bucket_seconds_);
  while (index >= kBuckets) {
    coarsen();
    index = static_cast<std::size_t>(time / bucket_seconds_);
  }
  if (index >= buckets_.size()) buckets_.resize(index + 1);
  return buckets_[index];
}

void PassMetrics::on_step(const StepRecord& step, double gpu_seconds) {
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

void PassMetrics::add(const PassMetrics& other) {
  PassMetrics coarse;
  const std::vector<Bucket>* buckets = &other.buckets_;
  while (bucket_seconds_ < other.bucket_seconds_) coarsen();
  if (other.bucket_seconds_ < bucket_seconds_) {
    coarse = other;
    while (coarse.bucket_seconds_ < bucket_seconds_) coarse.coarsen();
    buckets = &coarse.buckets_;
  }
  if (buckets->size() > buckets_.size()) buckets_.resize(buckets->size());
  for (std::size_t i = 0; i < buckets->size(); ++i) buckets_[i].add((*buckets)[i]);
  steps_ += other.steps_;
  prefill_steps_ += other.prefill_steps_;
  decode_steps_ += other.decode_steps_;
  mixed_steps_ += other.mixed_steps_;
  replayed_steps_ += other.replayed_steps_;
  gpu_seconds_ += other.gpu_seconds_;
  for (std::size_t i = 0; i < peak_usage_.size(); ++i)
    peak_usage_[i] = std::max(peak_usage_[i], other.peak_usage_[i]);
}

void PassMetrics::write(double end, double duration, double replicas, proto::RunReport& report) const {
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
  const double busy = duration > 0 ? gpu_seconds_ / duration : 0;
  report.set_gpu_busy_fraction(std::min(1.0, busy / replicas));  // a last dropped pass may outlast the run
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const double start = static_cast<double>(i) * bucket_seconds_;
    const double width = std::min(bucket_seconds_, end - start);
    if (width <= 0) break;
    proto::TimelinePoint& point = *report.add_timeline();
    point.set_time(start);
    point.set_queue(bucket.queue / width);
    point.set_running(bucket.running / width);
    point.set_kv_usage(bucket.kv_usage / replicas / width);
    point.set_cache_hit_rate(bucket.prompt_tokens > 0 ? bucket.hit_tokens / bucket.prompt_tokens : 0);
    point.set_prefill_tokens_per_second(bucket.prefill_tokens / width);
    point.set_decode_tokens_per_second(bucket.decode_tokens / width);
  }
}

void PassMetrics::write(proto::ReplicaReport& report) const {
  report.set_steps(steps_);
  report.set_busy_seconds(gpu_seconds_);
  report.set_peak_kv_usage(peak_usage_[kvcache::kKvPool]);
}

}  // namespace tpsim::scheduler
