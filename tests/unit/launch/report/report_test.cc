#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "launch/report/csv_writer.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "launch/report/report_dir.h"
#include "launch/report/sweep_report.h"
#include "proto/base/error.h"
#include "tests/unit/launch/report/sample_report.h"

namespace tpsim::launch {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::temp_directory_path() / ("tpsim-" + name + "-" + std::to_string(getpid()));
  fs::remove_all(folder);
  return folder;
}

// Golden files are written anew with TPSIM_UPDATE_GOLDEN=1.
void expect_golden(const std::string& name, const std::string& text) {
  const fs::path path = fs::path(TPSIM_GOLDEN_DIR) / name;
  if (std::getenv("TPSIM_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(text, read(path)) << "differs from " << path;
}

TEST(JsonWriter, IsGolden) { expect_golden("report.json", to_json(sample_comparison()).dump(2) + "\n"); }

TEST(JsonWriter, NumbersAreNumbersAndEveryFieldIsThere) {
  const auto json = to_json(proto::RunReport());
  EXPECT_TRUE(json["completed"].is_number_integer());
  EXPECT_TRUE(json["mean_ttft_ms"].is_number());
  EXPECT_TRUE(json["server_args"].is_object());
  for (const char* key : {"completed",           "duration",
                          "total_input_tokens",  "total_output_tokens",
                          "request_throughput",  "input_throughput",
                          "output_throughput",   "total_throughput",
                          "mean_ttft_ms",        "median_ttft_ms",
                          "p99_ttft_ms",         "mean_tpot_ms",
                          "median_tpot_ms",      "p99_tpot_ms",
                          "mean_itl_ms",         "median_itl_ms",
                          "p95_itl_ms",          "p99_itl_ms",
                          "mean_e2e_latency_ms", "median_e2e_latency_ms",
                          "p99_e2e_latency_ms",  "concurrency",
                          "cache_hit_rate",      "peak_kv_usage",
                          "retractions",         "steps",
                          "calibration",         "ranks"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(to_json(sample_run("fa3", 1))["total_input_tokens"].get<std::uint64_t>(), 5000000000U);
}

TEST(JsonWriter, WhatWasNotAskedForIsNull) {
  auto json = to_json(proto::RunReport());
  for (const char* key :
       {"request_goodput", "goodput_share", "overload", "max_goodput_rate", "max_goodput_search"})
    EXPECT_TRUE(json[key].is_null()) << key;
  proto::RunReport run;
  run.set_request_goodput(0);
  run.mutable_overload()->set_offered_rate(3);
  json = to_json(run);
  EXPECT_EQ(json["request_goodput"], 0);
  EXPECT_EQ(json["overload"]["offered_rate"], 3);
}

TEST(Comparison, TableIsGolden) {
  expect_golden("comparison.txt", comparison_table(sample_comparison(), false));
}

TEST(Comparison, RunSummaryIsGolden) { expect_golden("summary.txt", run_summary(sample_run("fa3", 1))); }

// Every width from that of the widest column on: no line of the table is longer, what stays is what was
// there, and what went is said.
TEST(Comparison, TablesFitTheTerminal) {
  const proto::ComparisonReport report = sample_comparison();
  const std::string whole = comparison_table(report, false);
  EXPECT_EQ(comparison_table(report, false, 500), whole);
  for (const int width : {120, 100, 90, 80, 70}) {
    const std::string text = comparison_table(report, false, width);
    const std::string table = text.substr(0, text.find("  (in the report"));
    ASSERT_LT(table.size(), text.size()) << width;
    std::size_t longest = 0;
    for (std::size_t at = 0; at < table.size();) {
      const std::size_t end = table.find('\n', at);
      longest = std::max(longest, end - at);
      at = end + 1;
    }
    EXPECT_LE(longest, static_cast<std::size_t>(width));
    EXPECT_GE(longest + 14, static_cast<std::size_t>(width)) << "more went than had to";
    EXPECT_EQ(text.find("retracted"), text.find("retracted", text.find("(in the report"))) << text;
    EXPECT_NE(table.find("latency s"), std::string::npos);
  }
}

TEST(Comparison, HitRatesMayBeUnknown) {
  proto::ComparisonReport report = sample_comparison();
  EXPECT_EQ(comparison_table(report, false).find("Hit rate unknown"), std::string::npos);
  for (proto::RunReport& run : *report.mutable_runs()) run.set_hit_rate_unknown(true);
  for (const std::string& table : {comparison_table(report, false), sweep_table(report, false)})
    EXPECT_NE(table.find("\nHit rate unknown: the trace says"), std::string::npos) << table;
  EXPECT_NE(run_summary(report.runs(0)).find("Cache hit rate:                   unknown"), std::string::npos);
  EXPECT_EQ(to_json(report.runs(0)).at("hit_rate_unknown"), true);
}

TEST(Comparison, ThatNoServerWasMeasuredComesFirst) {
  proto::RunReport run = sample_run("fa3", 1);
  EXPECT_EQ(run_summary(run).find("Not measured"), std::string::npos);
  run.set_no_server("no server of this family on this GPU was measured: Mixtral on l40s");
  EXPECT_TRUE(
      run_summary(run).starts_with("Not measured:                     no server of this family on this GPU "
                                   "was measured: Mixtral on l40s\n"));
  EXPECT_EQ(to_json(run).at("no_server"), run.no_server());
  proto::ComparisonReport report = sample_comparison();
  for (proto::RunReport& each : *report.mutable_runs()) each.set_no_server(run.no_server());
  // Once, however many settings it is true of.
  const std::string once = fmt::format("Not measured: {}\n\n", run.no_server());
  for (const std::string& table : {comparison_table(report, false), sweep_table(report, false)}) {
    EXPECT_TRUE(table.starts_with(once)) << table;
    EXPECT_EQ(table.find("Not measured", once.size()), std::string::npos);
  }
}

TEST(Comparison, WithinOnePercentTheLowerLatencyWins) {
  proto::ComparisonReport report;
  *report.add_runs() = sample_run("a", 1.0);
  *report.add_runs() = sample_run("b", 1.005);
  report.mutable_runs(1)->set_mean_e2e_latency_ms(10);
  choose_best(report);
  EXPECT_EQ(report.best(), "b");
  report.mutable_runs(1)->set_total_throughput(report.runs(0).total_throughput() * 0.98);
  choose_best(report);
  EXPECT_EQ(report.best(), "a");
  EXPECT_NE(report.best_reason().find("above b"), std::string::npos) << report.best_reason();
}

TEST(Comparison, ARunThatStoppedEarlyIsNotComparedWithOneThatServedEverything) {
  proto::ComparisonReport report;
  *report.add_runs() = sample_run("fa3", 1);
  proto::RunReport& stopped = *report.add_runs();
  stopped = sample_run("triton", 0.5);  // twice as fast, on the first requests
  stopped.set_completed(150);
  stopped.set_stopped_early(true);
  report.set_planned_runs(3);
  choose_best(report);
  EXPECT_EQ(report.best(), "");
  EXPECT_EQ(report.best_reason(),
            "stopped early: only fa3 has served every request, and nothing else can be compared with it");
  EXPECT_NE(comparison_table(report, false).find("triton (stopped early)"), std::string::npos);
  report.mutable_runs(0)->set_stopped_early(true);
  choose_best(report);
  EXPECT_EQ(report.best_reason(), "stopped early, before any of 3 had served every request");
}

TEST(Comparison, OfTheFinishedRunsOneIsBestAndTheReasonSaysOfHowMany) {
  proto::ComparisonReport report = sample_comparison();
  report.mutable_runs(2)->set_stopped_early(true);
  report.set_planned_runs(5);
  choose_best(report);
  EXPECT_EQ(report.best(), "fa3");
  EXPECT_EQ(report.best_reason(),
            "highest throughput: 43000 tokens/s, 30.0 % above triton; stopped early, of the 2 of 5 that were "
            "finished");
}

TEST(Comparison, ARunThatRefusedRequestsDoesNotWin) {
  proto::ComparisonReport report = sample_comparison();
  report.mutable_runs(2)->set_completed(999);
  choose_best(report);
  EXPECT_EQ(report.best(), "fa3");
  EXPECT_NE(
      report.best_reason().find("less was served: flashinfer+fa3 (999 requests, 300000 generated tokens)"),
      std::string::npos)
      << report.best_reason();
}

TEST(Comparison, ChoosesByGoodputAndByTheRateWithinServiceLevels) {
  proto::ComparisonReport report;
  for (const char* name : {"a", "b", "c"}) *report.add_runs() = sample_run(name, 1);
  report.mutable_runs(0)->set_mean_e2e_latency_ms(10);
  choose_best(report);
  EXPECT_EQ(report.best(), "a");

  const auto goodput = [&report](int run, double rate) {
    report.mutable_runs(run)->set_request_goodput(rate);
    report.mutable_runs(run)->set_goodput_share(rate / 10);
    (*report.mutable_runs(run)->mutable_server_args())["goodput"] = "ttft:2000";
  };
  goodput(0, 5);
  goodput(1, 8);
  choose_best(report);
  EXPECT_EQ(report.best(), "a");  // c has none: they cannot be compared by it
  goodput(2, 7);
  choose_best(report);
  EXPECT_EQ(report.best(), "b");
  EXPECT_EQ(report.best_reason(), "highest goodput: 8.00 requests/s, against 7.00 requests/s of c");
  goodput(0, 7.99);  // within 1 %
  choose_best(report);
  EXPECT_EQ(report.best(), "a");
  EXPECT_TRUE(
      report.best_reason().starts_with("goodput 8.00 requests/s, within 1 % of the highest; of those 43000"))
      << report.best_reason();

  const auto found = [&report](int run, const std::string& outcome, double rate) {
    proto::RunReport& r = *report.mutable_runs(run);
    r.mutable_max_goodput_search()->set_outcome(outcome);
    r.mutable_max_goodput_search()->set_message("as it ended");
    r.clear_max_goodput_rate();
    if (rate > 0) r.set_max_goodput_rate(rate);
  };
  found(0, "unreachable", 0);
  found(1, "found", 3);
  found(2, "found", 4);
  choose_best(report);
  EXPECT_EQ(report.best(), "c");
  EXPECT_EQ(report.best_reason(),
            "highest rate within the service levels: 4.00 requests/s, against 3.00 requests/s of b");
  found(0, "unlimited", 0);
  choose_best(report);
  EXPECT_EQ(report.best(), "a");
  found(0, "stopped", 0);
  choose_best(report);
  EXPECT_TRUE(report.best_reason().starts_with("goodput 8.00")) << report.best_reason();

  report.mutable_runs(1)->mutable_overload()->set_message(
      "offered 2.00 requests/s, served 1.00: the queue grows");
  const std::string table = comparison_table(report, false);
  for (const char* part : {"goodput  good %  max req/s", "\n  c: as it ended\n", "stopped",
                           "Overload:\n  b: offered 2.00 requests/s, served 1.00: the queue grows\n"})
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
}

TEST(Comparison, SummaryTellsWherePercentilesAreOfBuckets) {
  proto::RunReport run;
  EXPECT_EQ(run_summary(run).find("percentiles"), std::string::npos);
  EXPECT_FALSE(to_json(run).contains("percentile_error"));
  run.set_percentile_error(0x1p-11);
  EXPECT_NE(run_summary(run).find("accuracy of percentiles         within 0.049 %"), std::string::npos);
  EXPECT_EQ(to_json(run)["percentile_error"], 0x1p-11);
}

TEST(Comparison, NothingCompletedHasNoBest) {
  proto::ComparisonReport report;
  report.add_runs()->set_backend("fa3");
  choose_best(report);
  EXPECT_EQ(report.best(), "");
}

TEST(HtmlPage, IsSelfContainedAndEscapesWhatItShows) {
  proto::ComparisonReport report = sample_comparison();
  report.mutable_runs(0)->set_model("</script><script>alert(1)</script><!--");
  const std::string page = html_page(page_data(to_json(report), {}));
  EXPECT_EQ(page.find("</script><script>alert"), std::string::npos);
  EXPECT_EQ(page.find("src="), page.find("src=", page.size()));  // no outside script or picture
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  EXPECT_EQ(page.find("@CHART_JS@"), std::string::npos);
  EXPECT_LT(page.size(), 1500000u);
  EXPECT_EQ(page, html_page(page_data(to_json(report), {})));
}

TEST(ReportDir, NothingIsThereUntilItIsCommitted) {
  const fs::path folder = fresh_folder("commit");
  {
    ReportDir dir(folder / "deep" / "er");
    dir.open("report.json").write("{}");
    EXPECT_FALSE(fs::exists(folder / "deep" / "er" / "report.json"));
  }
  EXPECT_TRUE(fs::is_empty(folder / "deep" / "er"));
  ReportDir dir(folder);
  dir.open("report.json").write("{}");
  dir.commit_all();
  EXPECT_EQ(read(folder / "report.json"), "{}");
  fs::remove_all(folder);
}

TEST(ReportDir, RefusesAFileAndAFolderWithoutPermission) {
  const fs::path folder = fresh_folder("refuse");
  fs::create_directories(folder);
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(ReportDir(folder / "file"), UserError);
  EXPECT_THROW(ReportDir(folder / "file" / "below"), UserError);
  if (geteuid() != 0) {
    fs::create_directories(folder / "locked");
    chmod((folder / "locked").c_str(), 0500);
    EXPECT_THROW(ReportDir(folder / "locked"), UserError);
  }
  fs::remove_all(folder);
}

TEST(CsvWriter, MarksGoodRequestsWhereTheyAreAskedFor) {
  const fs::path folder = fresh_folder("csv-good");
  ReportDir dir(folder);
  CsvOptions options;
  options.goodput.ttft_ms = 1000;
  CsvWriter csv(dir, options);
  csv.begin_run("fa3");
  scheduler::RequestRecord request;
  request.state = scheduler::RequestState::kCompleted;
  request.first_token_time = request.finish_time = 0.5;
  csv.on_request(request);
  request.first_token_time = request.finish_time = 1.5;
  csv.on_request(request);
  csv.finish();
  dir.commit_all();
  const std::string requests = read(folder / "requests.csv");
  EXPECT_NE(requests.find(",finish_time,good\n"), std::string::npos) << requests;
  EXPECT_NE(requests.find(",0.5,0.5,1\n"), std::string::npos) << requests;
  EXPECT_NE(requests.find(",1.5,1.5,0\n"), std::string::npos) << requests;
  fs::remove_all(folder);
}

TEST(CsvWriter, WritesOneRowARecord) {
  const fs::path folder = fresh_folder("csv");
  ReportDir dir(folder);
  CsvWriter csv(dir, {});
  csv.begin_run("fa3");
  scheduler::RequestRecord request;
  request.id = 7;
  request.state = scheduler::RequestState::kCompleted;
  request.input_tokens = 100;
  request.finish_time = 1234.56789;
  csv.on_request(request);
  scheduler::StepRecord step;
  step.forward_mode = proto::DECODE;
  step.step_time = 0.012345;
  csv.on_step(step);
  csv.on_step(step);
  csv.finish();
  dir.commit_all();
  const std::string requests = read(folder / "requests.csv");
  EXPECT_NE(requests.find("fa3,7,completed,0,100,0,0,0,0,0,0,1234.56789\n"), std::string::npos) << requests;
  const std::string steps = read(folder / "steps.csv");
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 3);
  EXPECT_NE(steps.find("fa3,0,DECODE,0,0.012345,"), std::string::npos) << steps;
  fs::remove_all(folder);
}

TEST(ReportDir, NothingChangesWhereOneFileCannotBeCompleted) {
  const fs::path folder = fresh_folder("full");
  fs::create_directories(folder / "report.html");
  std::ofstream(folder / "report.json") << "old";
  ReportDir dir(folder);
  dir.open("report.json").write("new");
  EXPECT_THROW(dir.open("report.html"), UserError);
  fs::remove(folder / "report.html");
  fs::create_symlink("/dev/full", folder / "report.html");
  dir.open("report.html").write("new");
  EXPECT_THROW(dir.commit_all(), UserError);
  EXPECT_EQ(read(folder / "report.json"), "old");
  EXPECT_TRUE(fs::is_symlink(folder / "report.html"));
  fs::remove_all(folder);
}

// Rows of a run of ten steps, by `options`, in a folder that has files of an earlier run.
std::string steps_of(const fs::path& folder, const CsvOptions& options) {
  fs::create_directories(folder);
  std::ofstream(folder / "steps.csv") << "old";
  std::ofstream(folder / "steps.csv.gz") << "old";
  ReportDir dir(folder);
  CsvWriter csv(dir, options);
  csv.begin_run("fa3");
  scheduler::StepRecord step;
  for (; step.sequence_number < 10; ++step.sequence_number) csv.on_step(step);
  csv.finish();
  dir.commit_all();
  std::string numbers;
  std::ifstream rows(folder / "steps.csv");
  for (std::string line; std::getline(rows, line);) {
    if (line.starts_with("fa3,")) numbers += line.substr(4, 1);
  }
  return numbers;
}

TEST(CsvWriter, ChoosesSteps) {
  const fs::path folder = fresh_folder("steps");
  EXPECT_EQ(steps_of(folder, {}), "0123456789");
  EXPECT_FALSE(fs::exists(folder / "steps.csv.gz")) << "of an earlier run";
  EXPECT_EQ(steps_of(folder, {.steps_every = 4}), "048");
  EXPECT_EQ(steps_of(folder, {.steps_every = 0}), "");
  EXPECT_FALSE(fs::exists(folder / "steps.csv"));
  steps_of(folder, {.compress = true});
  EXPECT_FALSE(fs::exists(folder / "steps.csv"));
  EXPECT_EQ(read(folder / "steps.csv.gz").substr(0, 2), "\x1f\x8b");
  EXPECT_TRUE(fs::exists(folder / "requests.csv.gz"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tpsim::launch
