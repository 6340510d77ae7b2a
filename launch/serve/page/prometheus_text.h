// GET /metrics: what a live server has done, in Prometheus' text format (version 0.0.4), with the names, help
// texts, labels and buckets of SGLang 0.5.12 (observability/metrics_collector.py, utils/common.py,
// mem_cache/base_prefix_cache.py), so that dashboards and autoscalers of SGLang read it.
//
// Seconds are those of the simulated clock, which runs `tpsim:speedup` times as fast as the wall. A metric of
// something that a simulation does not do (grammars, LoRA, disaggregation …) is not printed, except where
// SGLang prints a zero too. What SGLang has no name for begins with "tpsim:".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

inline constexpr const char* kPrometheusContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string prometheus_text(const LiveStatistics& statistics);

using MetricLabels = std::vector<std::pair<std::string_view, std::string>>;

// Lines of the format.
class Exposition {
 public:
  // What the samples that follow are of. `type`: "gauge", "counter" or "histogram".
  void metric(std::string_view name, std::string_view type, std::string_view help);
  // A sample of the metric named last; `more`: a label of its own.
  void sample(const MetricLabels& labels, double value, const MetricLabels& more = {});
  // Buckets, sum and count of the histogram named last.
  void histogram(const MetricLabels& labels, const LiveHistogram& values);

  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, const MetricLabels& labels, const MetricLabels& more, double value);

  std::string name_;
  std::string text_;
};

// As Python's prometheus_client prints numbers: "0.1", "100.0", "1e+06", "+Inf".
std::string prometheus_number(double value);

}  // namespace tpsim::launch
