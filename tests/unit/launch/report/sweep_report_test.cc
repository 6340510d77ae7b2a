#include "launch/report/sweep_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "launch/report/comparison.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "tests/unit/launch/report/sample_report.h"

namespace tpsim::launch {
namespace {

void add_axis(proto::ComparisonReport& report, const std::string& flag,
              const std::vector<std::string>& values) {
  proto::SweepAxis& axis = *report.mutable_sweep()->add_axes();
  axis.set_flag(flag);
  for (const std::string& value : values) axis.add_values(value);
}

proto::RunReport& add_run(proto::ComparisonReport& report, const std::string& tp, const std::string& rate,
                          double throughput, double latency) {
  proto::RunReport& run = *report.add_runs();
  run = sample_run("fa3", 1);
  run.set_tp_size(static_cast<std::uint32_t>(std::stoul(tp)));
  run.set_total_throughput(throughput);
  run.set_mean_e2e_latency_ms(latency);
  (*run.mutable_settings())["tp_size"] = tp;
  (*run.mutable_settings())["request_rate"] = rate;
  return run;
}

proto::ComparisonReport sample_sweep() {
  proto::ComparisonReport report;
  add_axis(report, "tp_size", {"4", "8", "6"});
  add_axis(report, "request_rate", {"2", "8"});
  add_run(report, "4", "2", 10000, 5000);
  add_run(report, "4", "8", 30000, 9000);
  add_run(report, "8", "2", 20002, 3000);
  add_run(report, "8", "8", 80000, 6000);
  proto::RefusedSetting& refused = *report.add_refused();
  (*refused.mutable_settings())["tp_size"] = "6";
  (*refused.mutable_settings())["request_rate"] = "2";
  refused.set_reason("--tp 6: does not divide 64 heads, or 8");
  report.set_planned_runs(4);
  choose_best(report);
  mark_pareto(report);
  choose_best_by_load(report);
  return report;
}

TEST(Sweep, TheFrontIsWhatNoOtherBeatsInBoth) {
  const proto::ComparisonReport report = sample_sweep();
  EXPECT_FALSE(report.runs(0).pareto());
  EXPECT_FALSE(report.runs(1).pareto());
  EXPECT_TRUE(report.runs(2).pareto());
  EXPECT_TRUE(report.runs(3).pareto());
}

TEST(Sweep, EqualRunsAreBothOnTheFrontAndIncomparableOnesAreNot) {
  proto::ComparisonReport report = sample_sweep();
  *report.add_runs() = report.runs(3);
  proto::RunReport& less = *report.add_runs();
  less = report.runs(3);
  less.set_total_throughput(1e9);
  less.set_completed(999);
  mark_pareto(report);
  EXPECT_TRUE(report.runs(3).pareto());
  EXPECT_TRUE(report.runs(4).pareto());
  EXPECT_FALSE(report.runs(5).pareto());
}

TEST(Sweep, TheBestSettingIsNamedByWhatVaries) {
  const proto::ComparisonReport report = sample_sweep();
  EXPECT_EQ(report.best(), "fa3");
  EXPECT_EQ(report.best_setting().at("tp_size"), "8");
  EXPECT_EQ(report.best_setting().at("request_rate"), "8");
  EXPECT_EQ(report.best_reason(),
            "highest throughput: 10000 tokens/s a GPU, 33.3 % above --tp-size 4, --request-rate 8");
  EXPECT_EQ(std::count_if(report.runs().begin(), report.runs().end(),
                          [&](const proto::RunReport& run) { return is_best(report, run); }),
            1);
}

// Twice the GPUs for half as much more: each of them serves less.
TEST(Sweep, GpusAreWhatRatesAreCountedBy) {
  proto::ComparisonReport report;
  add_axis(report, "tp_size", {"4", "8"});
  add_run(report, "4", "2", 20000, 5000);
  add_run(report, "8", "2", 30000, 3000);
  *report.add_runs() = report.runs(0);
  report.mutable_runs(2)->set_total_throughput(44000);
  for (int i = 0; i < 2; ++i) report.mutable_runs(2)->add_replicas();
  (*report.mutable_runs(2)->mutable_settings())["dp_size"] = "2";
  EXPECT_EQ(num_gpus(report.runs(2)), 8u);
  EXPECT_TRUE(RateUnit(report).per_gpu());
  choose_best(report);
  mark_pareto(report);
  EXPECT_TRUE(is_best(report, report.runs(2))) << report.best_reason();
  EXPECT_EQ(report.best_reason(), "highest throughput: 5500 tokens/s a GPU, 10.0 % above --tp-size 4");
  EXPECT_FALSE(report.runs(0).pareto()) << "the replicas do more a GPU, as soon";
  EXPECT_TRUE(report.runs(1).pareto()) << "the soonest";
}

TEST(Sweep, OverloadedGpusAreNotTheBestOnes) {
  proto::ComparisonReport report;
  add_axis(report, "tp_size", {"4", "8"});
  add_run(report, "4", "2", 30000, 90000).mutable_overload()->set_message("the queue grows without end");
  add_run(report, "8", "2", 40000, 3000);
  choose_best(report);
  EXPECT_TRUE(is_best(report, report.runs(1))) << report.best_reason();
  EXPECT_EQ(report.best_reason().rfind("of those that keep up with the load ", 0), 0u)
      << report.best_reason();
  report.mutable_runs(1)->mutable_overload();
  choose_best(report);
  EXPECT_TRUE(is_best(report, report.runs(0))) << "all are";
}

TEST(Sweep, EachLoadHasItsBest) {
  const proto::ComparisonReport report = sample_sweep();
  ASSERT_EQ(report.best_by_load_size(), 2);
  EXPECT_EQ(report.best_by_load(0).load().at("request_rate"), "2");
  EXPECT_EQ(report.best_by_load(0).setting().at("tp_size"), "8");
  EXPECT_EQ(report.best_by_load(0).mean_e2e_latency_ms(), 3000);
  EXPECT_NE(sweep_table(report, false)
                .find("\nBest at --request-rate 2: --tp-size 8 (20002 tokens/s, mean latency 3.00 s)\n"),
            std::string::npos)
      << sweep_table(report, false);
}

TEST(Sweep, TableMarksBestAndFrontAndSaysWhatIsNotPossible) {
  const std::string table = sweep_table(sample_sweep(), false);
  EXPECT_NE(table.find("  tp size  request rate  req/s"), std::string::npos) << table;
  EXPECT_NE(table.find("tok/s/GPU"), std::string::npos);
  EXPECT_NE(table.find("\n* 8        8"), std::string::npos) << table;
  EXPECT_NE(table.find("\n+ 8        2"), std::string::npos) << table;
  EXPECT_NE(table.find("\n  4        8"), std::string::npos) << table;
  EXPECT_NE(table.find("Not possible (1 of 5 settings):\n  --tp-size 6, --request-rate 2: --tp 6: does not"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("\nBest: --tp-size 8, --request-rate 8 ("), std::string::npos) << table;
  EXPECT_EQ(table.find("backend"), std::string::npos) << "only what varies has a column";
}

TEST(Sweep, OfManySettingsTheTerminalShowsWhatStandsOut) {
  proto::ComparisonReport report = sample_sweep();
  for (int i = 0; i < 60; ++i) add_run(report, "4", std::to_string(100 + i), 20000 + i, 8000 + i);
  choose_best(report);
  mark_pareto(report);
  choose_best_by_load(report);
  report.clear_best_by_load();
  const std::string table = sweep_table(report, false);
  EXPECT_LT(std::count(table.begin(), table.end(), '\n'), 15) << table;
  keep_what_stands_out(report);
  EXPECT_EQ(report.runs(0).timeline_size(), 0);
  EXPECT_GT(report.runs(3).timeline_size(), 0);
  const std::string csv = sweep_csv(report);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 64 + 1);
  EXPECT_LT(html_page(page_data(to_json(report), {})).size(), 1'500'000u);
}

TEST(Sweep, CsvHasOneRowForEachSettingWithTheSameColumns) {
  const std::string csv = sweep_csv(sample_sweep());
  EXPECT_EQ(csv.rfind("tp_size,request_rate,backend,best,pareto,not_possible,", 0), 0u) << csv;
  EXPECT_NE(csv.find("\n8,8,fa3,true,true,,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\n6,2,,false,false,\"--tp 6: does not divide 64 heads, or 8\","), std::string::npos)
      << csv;
  const std::size_t end = csv.find('\n');
  const auto columns = std::count(csv.begin(), csv.begin() + static_cast<std::ptrdiff_t>(end), ',');
  const std::size_t second = csv.find('\n', end + 1);
  EXPECT_EQ(std::count(csv.begin() + static_cast<std::ptrdiff_t>(end),
                       csv.begin() + static_cast<std::ptrdiff_t>(second), ','),
            columns);
}

TEST(Sweep, JsonHasTheAxesAndEachRunItsSettings) {
  const auto json = to_json(sample_sweep());
  EXPECT_EQ(
      json["sweep"].dump(),
      R"({"axes":[{"flag":"tp_size","values":["4","8","6"]},{"flag":"request_rate","values":["2","8"]}]})");
  EXPECT_EQ(json["runs"][3]["settings"].dump(), R"({"request_rate":"8","tp_size":"8"})");
  EXPECT_EQ(json["runs"][3]["pareto"], true);
  EXPECT_EQ(json["best_setting"].dump(), R"({"request_rate":"8","tp_size":"8"})");
  EXPECT_EQ(json["refused"][0]["settings"]["tp_size"], "6");
}

}  // namespace
}  // namespace tpsim::launch
