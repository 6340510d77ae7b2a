// What goes into the report page, and that it stays small.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"
#include "launch/report/step_profile.h"
#include "tests/unit/launch/report/sample_report.h"

namespace tpsim::launch {
namespace {

// The numbers of StepProfile::encoded().
std::vector<std::uint64_t> decoded(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  std::uint32_t bits = 0;
  int held = 0;
  std::uint64_t value = 0;
  int shift = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    const std::uint32_t byte = bits >> held & 255;
    value |= std::uint64_t{byte & 127} << shift;
    shift += 7;
    if ((byte & 128) != 0) continue;
    numbers.push_back(value);
    value = 0;
    shift = 0;
  }
  return numbers;
}

scheduler::StepRecord step(proto::ForwardMode mode, double start, double seconds, std::uint32_t extend,
                           std::uint32_t decode) {
  scheduler::StepRecord record;
  record.forward_mode = mode;
  record.start_time = start;
  record.step_time = seconds;
  record.extend_tokens = extend;
  record.decode_requests = decode;
  record.decode_tokens = decode;  // one for each
  return record;
}

TEST(StepProfile, HoldsEveryStepOfAShortRun) {
  StepProfile profile;
  profile.add(step(proto::EXTEND, 1.5, 0.25, 8192, 0));
  profile.add(step(proto::DECODE, 1.75, 0.000200, 0, 300));
  profile.add(step(proto::MIXED, 2, 0.5, 100, 20));
  EXPECT_EQ(profile.steps(), 3u);
  EXPECT_EQ(profile.steps_per_block(), 1u);
  EXPECT_EQ(decoded(profile.encoded()),
            (std::vector<std::uint64_t>{1500000, 250000, 0,   0,      8192, 0,   0,  //
                                        0,       0,      200, 0,      0,    300, 0,  //
                                        249800,  0,      0,   500000, 100,  20,  0}));
}

TEST(StepProfile, LosesNeitherTokensNorSecondsOfALongRun) {
  StepProfile profile;
  const std::uint64_t steps = 5 * StepProfile::kMaxBlocks + 3;
  for (std::uint64_t i = 0; i < steps; ++i) {
    profile.add(step(i % 3 == 0 ? proto::EXTEND : proto::DECODE, 0.01 * static_cast<double>(i), 0.005,
                     i % 3 == 0 ? 10 : 0, i % 3 == 0 ? 0 : 7));
  }
  EXPECT_EQ(profile.steps(), steps);
  EXPECT_EQ(profile.steps_per_block(), 8u);
  EXPECT_LE(profile.size(), StepProfile::kMaxBlocks);
  const std::vector<std::uint64_t> numbers = decoded(profile.encoded());
  ASSERT_EQ(numbers.size(), 7 * profile.size());
  std::uint64_t micros = 0, extend = 0, decode = 0, counted = 0, now = 0;
  for (std::size_t i = 0; i < numbers.size(); i += 7) {
    now += numbers[i] + numbers[i + 1] + numbers[i + 2] + numbers[i + 3];
    micros += numbers[i + 1] + numbers[i + 2] + numbers[i + 3];
    extend += numbers[i + 4];
    decode += numbers[i + 5];
    counted += numbers[i + 6] == 0 ? 8 : numbers[i + 6];
  }
  EXPECT_EQ(micros, 5000 * steps);
  EXPECT_EQ(extend, 10 * ((steps + 2) / 3));
  EXPECT_EQ(decode, 7 * (steps - (steps + 2) / 3));
  EXPECT_EQ(counted, steps);
  EXPECT_NEAR(static_cast<double>(now) / 1e6, 0.01 * static_cast<double>(steps), 0.1);
}

TEST(PageData, HasEveryOptionAndCalibrationRowOnce) {
  proto::ComparisonReport report = sample_comparison();
  (*report.mutable_runs(1)->mutable_server_args())["page_size"] = "64";
  report.mutable_runs(2)->mutable_server_args()->erase("page_size");
  *report.mutable_runs(1)->add_calibration() = report.runs(0).calibration(0);
  const auto data = page_data(to_json(report), {});
  EXPECT_EQ(
      data["options"].dump(),
      R"([{"name":"chunked_prefill_size","values":["8192"]},{"name":"page_size","values":["1","64",null]}])");
  EXPECT_EQ(data["calibration"].size(), 3u);
  EXPECT_EQ(data["best_index"], 2) << "flashinfer+fa3 has the lowest latency";
  EXPECT_EQ(data["shown"].dump(), "[0,1,2]");
  EXPECT_EQ(data["runs"][0]["timeline"]["time"].size(), 50u);
  EXPECT_FALSE(data["runs"][0].contains("server_args"));
}

TEST(PageData, RanksThatSpendTheirTimeAlikeAreOne) {
  proto::ComparisonReport report;
  *report.add_runs() = sample_run("fa3", 1);
  proto::RunReport& run = *report.mutable_runs(0);
  *run.add_ranks() = run.ranks(0);
  run.mutable_ranks(2)->set_rank(2);
  const auto ranks = page_data(to_json(report), {})["runs"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0]["ranks"].dump(), "[0,2]");
  EXPECT_EQ(ranks[1]["ranks"].dump(), "[1]") << "it waits";
}

TEST(PageData, OfASweepTheBestAndSomeOfTheFrontAreShown) {
  const auto data = page_data(sample_sweep(), {});
  ASSERT_EQ(data["runs"].size(), 96u);
  EXPECT_EQ(data["best_index"], 19) << "fa3, tp 8, page 1, lpm, rate 8";
  EXPECT_EQ(data["shown"].dump(), "[19,16,17,18]");
}

TEST(HtmlPage, HoldsWhatTheJsonLibraryWouldWrite) {
  nlohmann::ordered_json data = page_data(sample_sweep(), {});
  data["more"] = {{"empty", nlohmann::ordered_json::object()},
                  {"none", nlohmann::ordered_json::array()},
                  {"texts", {"", "plain", "a \"quote\"", "back\\slash", "new\nline", "ünï", "\xff"}},
                  {"numbers", {1, -2, 0.1, 1e300, -0.0, true, nullptr}},
                  {"a \"key\"", 3}};
  const std::string dumped = data.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  ASSERT_EQ(dumped.find('<'), std::string::npos);
  EXPECT_EQ(fill_page("@CHART_JS@ x @DATA@ y", data).substr(fill_page("@CHART_JS@@DATA@", 1).size() - 1),
            " x " + dumped + " y");
}

TEST(HtmlPage, StaysSmallForManySettingsAndMillionsOfSteps) {
  EXPECT_LT(html_page(page_data(sample_sweep(), {})).size(), 700000u);
  StepProfile steps;
  for (std::uint64_t i = 0; i < 3000000; ++i)
    steps.add(step(i % 9 == 0 ? proto::EXTEND : proto::DECODE, 0.0112345 * static_cast<double>(i), 0.0101234,
                   i % 9 == 0 ? 5000 : 0, 120));
  const std::string page = html_page(page_data(to_json(sample_comparison()), {steps, steps, steps}));
  EXPECT_LT(page.size(), 3500000u);
  EXPECT_GT(page.size(), 1000000u);
}

}  // namespace
}  // namespace tpsim::launch
