// Lines of Prometheus' text format.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

using MetricLabels = std::vector<std::pair<std::string_view, std::string>>;

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
