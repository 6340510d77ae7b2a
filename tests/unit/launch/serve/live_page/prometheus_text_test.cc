#include "launch/serve/page/prometheus_text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/launch/serve/live_page/metric_lines.h"
#include "tests/unit/launch/serve/live_page/sample_statistics.h"

namespace tpsim::launch {
namespace {

// What SGLang 0.5.12's own collectors made (tests/references/record_metrics.py).
nlohmann::json sglang_metrics() {
  std::ifstream file(TPSIM_GOLDEN_DIR "/sglang/metrics_0.5.12.json");
  return nlohmann::json::parse(file).at("metrics");
}

TEST(PrometheusText, EveryMetricOfSglangsIsAsItsCollectorMakesIt) {
  const nlohmann::json wanted = sglang_metrics();
  const MetricLines said = read_metrics(prometheus_text(sample_statistics()));
  std::size_t compared = 0;
  for (const auto& [name, metric] : said.metrics) {
    if (name.starts_with("tpsim:")) continue;
    ASSERT_TRUE(wanted.contains(name)) << name;
    ++compared;
    const nlohmann::json& of = wanted[name];
    EXPECT_EQ(metric.type, of["type"]) << name;
    EXPECT_EQ(metric.help, of["help"]) << name;
    ASSERT_FALSE(metric.samples.empty()) << name;
    std::vector<std::string> edges;
    for (const MetricLines::Sample& sample : metric.samples) {
      std::set<std::string> labels;
      for (const auto& [key, value] : sample.labels)
        if (key != "le") labels.insert(key);
      EXPECT_EQ(labels, of["labels"].get<std::set<std::string>>()) << name;
      if (sample.labels.contains("le")) edges.push_back(sample.labels.at("le"));
    }
    EXPECT_EQ(edges, of.value("le", std::vector<std::string>{})) << name;
  }
  EXPECT_EQ(compared, 57U);
}

// SGLang's schedulers label what they say with their rank where there are several.
TEST(PrometheusText, DataParallelRanksSpeakForThemselves) {
  LiveStatistics live = sample_statistics();
  live.ranks.resize(2);
  live.ranks[0].num_running_reqs = 30;
  live.ranks[1].num_running_reqs = 7;
  live.ranks[1].kv_used_tokens = 300;
  live.ranks[1].kv_available_tokens = 100;
  const MetricLines said = read_metrics(prometheus_text(live));
  const auto value = [&said](const std::string& name, const char* rank) {
    return said.value(name, name, "dp_rank", rank);
  };
  EXPECT_EQ(value("sglang:num_running_reqs", "0"), 30);
  EXPECT_EQ(value("sglang:num_running_reqs", "1"), 7);
  EXPECT_EQ(value("sglang:token_usage", "0"), 0);
  EXPECT_EQ(value("sglang:token_usage", "1"), 0.75);
  const auto& queues = said.metrics.at("sglang:num_queue_reqs").samples;
  ASSERT_EQ(queues.size(), 2U);
  EXPECT_EQ(queues[0].labels.at("tp_rank"), "0");
  EXPECT_EQ(queues[1].labels.at("tp_rank"), "4") << "of eight";
}

// A dashboard for SGLang asks for these (examples/monitoring of its repository).
TEST(PrometheusText, WhatSglangsDashboardShowsIsThere) {
  const MetricLines said = read_metrics(prometheus_text(sample_statistics()));
  for (const char* name :
       {"sglang:e2e_request_latency_seconds", "sglang:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds", "sglang:num_running_reqs", "sglang:gen_throughput",
        "sglang:cache_hit_rate", "sglang:num_queue_reqs", "sglang:token_usage", "sglang:num_used_tokens",
        "sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:cached_tokens_total",
        "sglang:num_requests_total", "sglang:spec_accept_length"})
    EXPECT_TRUE(said.metrics.contains(name)) << name;
}

TEST(PrometheusText, FiguresAreThoseOfTheServer) {
  const MetricLines said = read_metrics(prometheus_text(sample_statistics()));
  const auto value = [&](const std::string& name) { return said.value(name, name); };
  EXPECT_EQ(value("sglang:num_running_reqs"), 37);
  EXPECT_EQ(value("sglang:num_queue_reqs"), 5);
  EXPECT_EQ(value("sglang:token_usage"), 0.25);
  EXPECT_EQ(value("sglang:kv_available_tokens"), 1e6);
  EXPECT_EQ(value("sglang:cache_hit_rate"), 0.625);
  EXPECT_EQ(value("sglang:fwd_occupancy"), 75);
  EXPECT_EQ(value("sglang:spec_accept_rate"), 0.5);  // 2 of 4 drafts
  EXPECT_EQ(value("sglang:num_pages"), 100000);
  EXPECT_EQ(value("sglang:evicted_tokens_total"), 12345678);
  EXPECT_EQ(
      said.value("sglang:cuda_graph_passes_total", "sglang:cuda_graph_passes_total", "mode", "decode_none"),
      100);
  EXPECT_EQ(said.value("sglang:forward_execution_seconds_total", "sglang:forward_execution_seconds_total",
                       "category", "decode"),
            300);
  EXPECT_EQ(said.metrics.at("sglang:num_running_reqs").samples.at(0).labels.at("model_name"),
            "my \"own\" model");
  EXPECT_EQ(said.value("sglang:http_requests_total", "sglang:http_requests_total", "endpoint", "/generate"),
            982);
}

TEST(PrometheusText, BucketsGrowToTheCount) {
  const MetricLines said = read_metrics(prometheus_text(sample_statistics()));
  for (const auto& [name, metric] : said.metrics) {
    if (metric.type != "histogram") continue;
    double below = 0, last = 0;
    for (const MetricLines::Sample& sample : metric.samples) {
      if (sample.name != name + "_bucket") continue;
      EXPECT_GE(sample.value, below) << name;
      below = last = sample.value;
    }
    EXPECT_EQ(said.value(name, name + "_count"), last) << name;
  }
  const std::string ttft = "sglang:time_to_first_token_seconds";
  EXPECT_EQ(said.value(ttft, ttft + "_bucket", "le", "0.4"), 41);
  EXPECT_NEAR(said.value(ttft, ttft + "_sum"), 49.5, 1e-9);
}

TEST(PrometheusText, NumbersAreThoseOfPrometheusClient) {
  EXPECT_EQ(prometheus_number(0), "0.0");
  EXPECT_EQ(prometheus_number(0.1), "0.1");
  EXPECT_EQ(prometheus_number(100), "100.0");
  EXPECT_EQ(prometheus_number(800000), "800000.0");
  EXPECT_EQ(prometheus_number(1e6), "1e+06");
  EXPECT_EQ(prometheus_number(1.1e6), "1.1e+06");
  EXPECT_EQ(prometheus_number(12345678), "1.2345678e+07");
  EXPECT_EQ(prometheus_number(HUGE_VAL), "+Inf");
  EXPECT_EQ(prometheus_number(1e22), "1e+22");
  EXPECT_EQ(prometheus_number(2.5e-7), "2.5e-07");
}

// Nothing has come yet: no division by nothing.
TEST(PrometheusText, AFreshServerHasFigures) {
  const std::string text = prometheus_text(LiveStatistics{});
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("NaN"), std::string::npos);
  const MetricLines said = read_metrics(text);
  EXPECT_EQ(said.value("sglang:token_usage", "sglang:token_usage"), 0);
}

}  // namespace
}  // namespace tpsim::launch
