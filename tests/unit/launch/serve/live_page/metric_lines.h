// /metrics taken apart again.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace tpsim::launch {

struct MetricLines {
  struct Sample {
    std::string name;
    std::map<std::string, std::string> labels;
    double value = 0;
  };
  struct Metric {
    std::string type, help;
    std::vector<Sample> samples;
  };
  std::map<std::string, Metric> metrics;

  // Of the first sample of that name whose labels have `label`; NaN: there is none.
  double value(const std::string& metric, const std::string& name, const std::string& key = "",
               const std::string& text = "") const {
    for (const Sample& sample : metrics.at(metric).samples)
      if (sample.name == name &&
          (key.empty() || (sample.labels.contains(key) && sample.labels.at(key) == text)))
        return sample.value;
    return std::numeric_limits<double>::quiet_NaN();
  }
};

inline MetricLines read_metrics(const std::string& text) {
  MetricLines result;
  MetricLines::Metric* metric = nullptr;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, name;
    if (line.starts_with("# ")) {
      std::string kind;
      words >> word >> kind >> name;
      metric = &result.metrics[name];
      std::string rest;
      std::getline(words >> std::ws, rest);
      (kind == "HELP" ? metric->help : metric->type) = rest;
      continue;
    }
    MetricLines::Sample sample;
    std::size_t at = line.find_first_of("{ ");
    sample.name = line.substr(0, at);
    if (line[at] == '{') {
      while (line[at] != '}') {
        const std::size_t equals = line.find('=', ++at);
        const std::string key = line.substr(at, equals - at);
        std::string value;
        for (at = equals + 2; line[at] != '"'; ++at) {
          if (line[at] == '\\') ++at;
          value += line[at];
        }
        sample.labels[key] = value;
        ++at;
      }
      ++at;
    }
    const std::string number = line.substr(at + 1);
    sample.value = number == "+Inf" ? HUGE_VAL : std::stod(number);
    metric->samples.push_back(sample);
  }
  return result;
}

}  // namespace tpsim::launch
