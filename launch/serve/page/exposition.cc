#include "launch/serve/page/exposition.h"

#include <fmt/format.h>

#include <cmath>

namespace tpsim::launch {
namespace {

// A label's value between its quotes.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

}  // namespace

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  const std::size_t point = text.find('.');
  constexpr std::size_t kMostDigits = 6;  // before the point
  if (value <= 0 || point == std::string::npos || point <= kMostDigits) return text;
  std::string mantissa = text.substr(0, 1) + "." + text.substr(1, point - 1) + text.substr(point + 1);
  mantissa.erase(mantissa.find_last_not_of("0.") + 1);
  return fmt::format("{}e+{:02}", mantissa, point - 1);
}

void Exposition::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void Exposition::line(std::string_view suffix, const MetricLabels& labels, const MetricLabels& more,
                      double value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const MetricLabels* list : {&labels, &more}) {
    for (const auto& [key, text] : *list) {
      fmt::format_to(std::back_inserter(text_), "{}{}=\"{}\"", before, key, escaped(text));
      before = ',';
    }
  }
  if (before == ',') text_ += '}';
  fmt::format_to(std::back_inserter(text_), " {}\n", prometheus_number(value));
}

void Exposition::sample(const MetricLabels& labels, double value, const MetricLabels& more) {
  line("", labels, more, value);
}

void Exposition::histogram(const MetricLabels& labels, const LiveHistogram& values) {
  double below = 0;
  for (std::size_t i = 0; i < values.counts.size(); ++i) {
    below += static_cast<double>(values.counts[i]);
    const double edge = i < values.edges.size() ? values.edges[i] : HUGE_VAL;
    line("_bucket", labels, {{"le", prometheus_number(edge)}}, below);
  }
  line("_count", labels, {}, below);
  line("_sum", labels, {}, values.sum);
}

}  // namespace tpsim::launch
