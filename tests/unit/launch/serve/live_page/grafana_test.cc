#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "launch/serve/page/prometheus_text.h"
#include "tests/unit/launch/serve/live_page/metric_lines.h"
#include "tests/unit/launch/serve/live_page/sample_statistics.h"

namespace tpsim::launch {
namespace {

nlohmann::json dashboard() {
  std::ifstream file(TPSIM_GRAFANA_DIR "/tpsim-serve.json");
  return nlohmann::json::parse(file);
}

std::vector<std::string> expressions() {
  std::vector<std::string> result;
  const nlohmann::json board = dashboard();
  for (const auto& panel : board["panels"])
    if (panel.contains("targets"))
      for (const auto& target : panel["targets"]) result.push_back(target["expr"]);
  for (const auto& variable : board["templating"]["list"])
    if (variable["type"] == "query") result.push_back(variable["query"]["query"]);
  return result;
}

TEST(Grafana, EveryExpressionAsksForWhatThereIs) {
  std::set<std::string> samples;
  const MetricLines said = read_metrics(prometheus_text(sample_statistics()));
  for (const auto& [name, metric] : said.metrics)
    for (const MetricLines::Sample& sample : metric.samples) samples.insert(sample.name);
  const std::regex name("(sglang|tpsim):[a-zA-Z0-9_]+");
  std::size_t names = 0;
  for (const std::string& expression : expressions()) {
    std::size_t here = 0;
    for (std::sregex_iterator it(expression.begin(), expression.end(), name), end; it != end; ++it, ++here)
      EXPECT_TRUE(samples.contains(it->str())) << expression;
    EXPECT_GT(here, 0U) << expression;
    names += here;
    EXPECT_EQ(std::count(expression.begin(), expression.end(), '('),
              std::count(expression.begin(), expression.end(), ')'))
        << expression;
  }
  EXPECT_GT(names, 50U);
}

// Counters are shown as rates, and each label that a legend or a sum names is one of the metric.
TEST(Grafana, CountersAreRates) {
  const std::regex counter("(rate|increase)\\(([a-z]+:[a-zA-Z0-9_]+)");
  for (const std::string& expression : expressions()) {
    const bool counts = std::regex_search(expression, std::regex("_(total|bucket|sum|count)[{[]"));
    EXPECT_EQ(counts, std::regex_search(expression, counter)) << expression;
  }
}

TEST(Grafana, PanelsHaveNumbersOfTheirOwnAndDoNotOverlap) {
  std::set<int> ids;
  std::set<std::pair<int, int>> taken;
  const nlohmann::json board = dashboard();
  for (const auto& panel : board["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second);
    const auto& place = panel["gridPos"];
    for (int x = place["x"]; x < place["x"].get<int>() + place["w"].get<int>(); ++x) {
      EXPECT_LT(x, 24);
      for (int y = place["y"]; y < place["y"].get<int>() + place["h"].get<int>(); ++y)
        EXPECT_TRUE(taken.emplace(x, y).second) << panel["title"];
    }
    if (panel["type"] == "row") continue;
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}");
  }
}

}  // namespace
}  // namespace tpsim::launch
