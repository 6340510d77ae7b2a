#include "launch/serve/pipelines/pipeline_metrics.h"

#include <fmt/format.h>

#include "launch/serve/page/prometheus_text.h"

namespace tpsim::launch {

void PipelineMetrics::on_batch(const ServedRequest& head, const char* stop_reason,
                               const rank::GenerationCost& cost) {
  Replica& r = replicas_[head.replica];
  r.batch_size.try_emplace(stop_reason, kSizes).first->second.observe(head.batch);
  for (const rank::StageCost& stage : cost.stages)
    r.stages.try_emplace(stage.name, kStageSeconds).first->second.observe(stage.seconds);
}

void PipelineMetrics::on_finished(const ServedRequest& served) {
  Replica& r = replicas_[served.replica];
  ++r.finished;
  r.latency.observe(served.end - served.arrival);
  r.queue_time.observe(served.start - served.arrival);
}

std::string PipelineMetrics::text(const RequestQueue& queue, double speedup) const {
  Exposition out;
  const auto labels = [](std::size_t replica) {
    return MetricLabels{{"role", "monolithic"}, {"replica", fmt::format("{}", replica)}};
  };
  // A sample of each replica.
  const auto each = [&](const char* name, const char* type, const char* help, const auto& sample) {
    out.metric(name, type, help);
    for (std::size_t i = 0; i < replicas_.size(); ++i) sample(i, labels(i));
  };
  const auto number = [](std::size_t count) { return static_cast<double>(count); };
  each("sglang:diffusion_num_queue_reqs", "gauge", "Requests waiting for first dispatch.",
       [&](std::size_t i, const MetricLabels& of) { out.sample(of, number(queue.num_waiting(i))); });
  each("sglang:diffusion_num_running_reqs", "gauge", "Dispatched requests not yet completed.",
       [&](std::size_t i, const MetricLabels& of) { out.sample(of, number(queue.num_running(i))); });
  const MetricLabels done = {{"status", "success"}, {"is_warmup", "false"}};
  const auto with = [](MetricLabels of, const MetricLabels& more) {
    of.insert(of.end(), more.begin(), more.end());
    return of;
  };
  each("sglang:diffusion_requests_total", "counter", "Completed original client requests.",
       [&](std::size_t i, const MetricLabels& of) { out.sample(of, number(replicas_[i].finished), done); });
  each("sglang:diffusion_request_latency_seconds", "histogram",
       "Time from scheduler acceptance to completion, excluding HTTP postprocessing.",
       [&](std::size_t i, const MetricLabels& of) { out.histogram(with(of, done), replicas_[i].latency); });
  each("sglang:diffusion_queue_time_seconds", "histogram", "Time until first dispatch.",
       [&](std::size_t i, const MetricLabels& of) {
         out.histogram(with(of, {{"is_warmup", "false"}}), replicas_[i].queue_time);
       });
  each("sglang:diffusion_generation_batch_size", "histogram", "Original requests per dispatched batch.",
       [&](std::size_t i, const MetricLabels& of) {
         for (const auto& [reason, sizes] : replicas_[i].batch_size)
           out.histogram(with(of, {{"stop_reason", reason}}), sizes);
       });
  each("sglang:diffusion_stage_host_latency_seconds", "histogram",
       "Host wall time around a pipeline stage; not synchronized GPU execution time.",
       [&](std::size_t i, const MetricLabels& of) {
         for (const auto& [stage, seconds] : replicas_[i].stages)
           out.histogram(with(of, {{"stage", stage}}), seconds);
       });
  out.metric("tpsim:speedup", "gauge", "Seconds of the simulated clock in one of the wall.");
  out.sample({}, speedup);
  return out.take();
}

}  // namespace tpsim::launch
