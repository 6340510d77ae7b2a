#include "launch/report/ties.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/error_bands/error_band.h"
#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "tests/unit/launch/error_bands/made_up.h"

namespace tpsim::launch {
namespace {

// Errors that all settings of a GPU share are large, what tells two backends apart is known well.
ResidualTable shared_errors() {
  return made_up_table(made_up_residuals({.gpu = 0.2, .family = 0.2, .server = 0.01, .load = 0.01}, 4));
}

proto::RunReport run(const ResidualTable& table, const std::string& backend, double latency,
                     const std::string& hardware = "gpu0") {
  proto::RunReport report;
  report.set_backend(backend);
  report.set_completed(100);
  report.set_total_output_tokens(25600);
  report.set_total_throughput(1000);
  report.set_mean_ttft_ms(100);
  report.set_mean_tpot_ms(10);
  report.set_mean_e2e_latency_ms(latency);
  report.set_duration(30);
  *report.mutable_error_bands() = error_bands(table, made_up_traits(hardware, "family0", backend), "", report)
                                      .value_or(proto::ErrorBands());
  return report;
}

proto::ComparisonReport compared(const ResidualTable& table, const std::vector<proto::RunReport>& runs) {
  proto::ComparisonReport report;
  for (const proto::RunReport& run : runs) *report.add_runs() = run;
  choose_best(report);
  find_ties(table, report);
  return report;
}

TEST(MeasuredPairs, KnowDifferencesBetterThanEitherSetting) {
  const ResidualTable table = shared_errors();
  const auto a = made_up_traits("gpu0", "family0", "fa3"), b = made_up_traits("gpu0", "family0", "triton");
  const auto error = pair_error(table, Figure::kLatency, a, b);
  ASSERT_TRUE(error);
  EXPECT_LT(error->error, 0.06);
  const Band band = *error_band(table, Figure::kLatency, a, true);
  EXPECT_LT(1 + error->error, band.high / band.low);
  EXPECT_NE(error->like.find("attention backends"), std::string::npos);
}

TEST(MeasuredPairs, DoNotReachToOtherGpusOrModels) {
  const ResidualTable table = shared_errors();
  const auto a = made_up_traits("gpu0", "family0");
  EXPECT_FALSE(pair_error(table, Figure::kLatency, a, made_up_traits("gpu1", "family0")));
  EXPECT_FALSE(pair_error(table, Figure::kLatency, a, made_up_traits("gpu0", "family1")));
  EXPECT_FALSE(pair_error(ResidualTable{}, Figure::kLatency, a, a));
}

TEST(Ties, AreWhatMeasuredPairsCannotTell) {
  const ResidualTable table = shared_errors();
  const proto::ComparisonReport report =
      compared(table, {run(table, "fa3", 1000), run(table, "triton", 1005), run(table, "flashinfer", 1500)});
  EXPECT_EQ(report.best(), "fa3");
  ASSERT_EQ(report.ties_size(), 1);
  EXPECT_EQ(report.ties(0).backend(), "triton");
  EXPECT_NEAR(report.ties(0).difference(), 0.005, 1e-9);
  EXPECT_GE(report.ties(0).error(), report.ties(0).difference());
  EXPECT_GE(report.ties(0).pairs(), kFewestLoads);
  EXPECT_TRUE(report.certainty().starts_with("Tie: triton ("));
  EXPECT_NE(comparison_table(report, false).find(report.certainty()), std::string::npos);
}

TEST(Ties, AClearWinnerIsNone) {
  const ResidualTable table = shared_errors();
  const proto::ComparisonReport report =
      compared(table, {run(table, "fa3", 1000), run(table, "triton", 1300)});
  EXPECT_EQ(report.ties_size(), 0);
  EXPECT_TRUE(report.certainty().starts_with("Told apart: triton is 30 % worse in mean latency"))
      << report.certainty();
}

TEST(Ties, ThroughputAloneMakesNone) {
  const ResidualTable table = shared_errors();
  proto::RunReport slow = run(table, "triton", 1600);
  slow.set_total_throughput(995);
  const proto::ComparisonReport report = compared(table, {run(table, "fa3", 1000), slow});
  EXPECT_EQ(report.ties_size(), 0);
}

TEST(Ties, GpusAreOneWhereTheirBandsOverlap) {
  const ResidualTable table = shared_errors();
  const proto::RunReport best = run(table, "fa3", 1000), other = run(table, "fa3", 1001, "gpu1"),
                         slow = run(table, "triton", 20000, "gpu1");
  const proto::ComparisonReport report = compared(table, {best, other, slow});
  ASSERT_EQ(report.ties_size(), 1);
  EXPECT_EQ(report.ties(0).backend(), "fa3");
}

TEST(Ties, NeedBands) {
  const ResidualTable table = shared_errors();
  proto::RunReport a = run(table, "fa3", 1000), b = run(table, "triton", 1000);
  a.clear_error_bands();
  const proto::ComparisonReport report = compared(table, {a, b});
  EXPECT_EQ(report.ties_size(), 0);
  EXPECT_TRUE(report.certainty().empty());
}

}  // namespace
}  // namespace tpsim::launch
