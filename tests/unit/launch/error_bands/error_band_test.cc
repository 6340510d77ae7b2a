#include "launch/error_bands/error_band.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launch/error_bands/residuals.h"
#include "tests/unit/launch/error_bands/made_up.h"

namespace tpsim::launch {
namespace {

double width(const Band& band) { return band.high / band.low; }

struct Coverage {
  double inside = 0, count = 0;
  double share() const { return count > 0 ? inside / count : 0; }
};

// Of loads whose server's loads, stretches included, the bands were made without.
Coverage without_servers(const std::vector<Residual>& rows, Figure figure) {
  std::set<std::string> servers;
  for (const Residual& row : rows) servers.insert(row.server);
  Coverage coverage;
  for (const std::string& server : servers) {
    std::vector<Residual> others;
    for (const Residual& row : rows)
      if (row.server != server) others.push_back(row);
    const ResidualTable table = made_up_table(others);
    for (const Residual& row : rows) {
      if (row.server != server || row.of(figure) <= 0) continue;
      const std::optional<Band> band = error_band(table, figure, row.traits);
      if (!band) continue;
      ++coverage.count;
      coverage.inside += row.of(figure) >= band->low && row.of(figure) <= band->high ? 1 : 0;
    }
  }
  return coverage;
}

TEST(ErrorBand, LoadsOfServersLeftOutLieInsideAsOftenAsPromised) {
  Coverage all;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    auto rows = made_up_residuals({.server = 0.05, .load = 0.03}, seed, 2, 2, 4, 4);
    for (Residual& row : rows) row.ratio = {0, row.of(Figure::kTpot), 0, 0};
    const Coverage coverage = without_servers(rows, Figure::kTpot);
    all.inside += coverage.inside;
    all.count += coverage.count;
  }
  EXPECT_NEAR(all.share(), kCoverage, 0.06);
}

TEST(ErrorBand, TheCataloguesBandsHoldForServersLeftOut) {
  const ResidualTable& table = catalogue_residuals();
  ASSERT_GT(table.rows.size(), 200U);
  for (std::size_t f = 0; f < kNumFigures; ++f) {
    Coverage coverage;
    for (const Residual& row : table.rows) {
      if (row.ratio[f] <= 0) continue;
      const auto band = error_band(table, static_cast<Figure>(f), row.traits, false, {.server = row.server});
      if (!band) continue;
      ++coverage.count;
      coverage.inside += row.ratio[f] >= band->low && row.ratio[f] <= band->high ? 1 : 0;
    }
    EXPECT_GT(coverage.count, 50) << kFigureNames[f];
    EXPECT_NEAR(coverage.share(), kCoverage, 0.1) << kFigureNames[f];
  }
}

TEST(ErrorBand, TheCataloguesStretchesAreThoseOfItsRows) {
  const ResidualTable& table = catalogue_residuals();
  const std::vector<ByFigure> fitted = fit_stretches(table.rows);
  ASSERT_EQ(table.stretches.size(), fitted.size());
  for (std::size_t l = 0; l < fitted.size(); ++l)
    for (std::size_t f = 0; f < kNumFigures; ++f)
      EXPECT_NEAR(table.stretches[l][f] / fitted[l][f], 1, 1e-3) << l << " " << f;
}

TEST(ErrorBand, RestsOnTheNearestLoadsThereAre) {
  const ResidualTable table =
      made_up_table(made_up_residuals({.gpu = 0.1, .server = 0.03, .load = 0.02}, 5, 4, 4));
  proto::LoadTraits asked = made_up_traits("gpu0", "family0");
  const auto level = [&] { return error_band(table, Figure::kTtft, asked)->like; };
  EXPECT_EQ(level(), Likeness::kLoad);
  asked.set_in_flight(500);
  EXPECT_EQ(level(), Likeness::kBackend);
  asked.set_backend("flashinfer");
  EXPECT_EQ(level(), Likeness::kGpuAndFamily);
  asked.set_hardware("gpu7");
  EXPECT_EQ(level(), Likeness::kAnything);
  asked.set_hardware("gpu0");
  asked.set_family("hybrid");
  EXPECT_EQ(level(), Likeness::kAnything);
  asked.set_hardware("gpu0");
  asked.set_family("family0");
  asked.set_speculation("EAGLE");  // without drafts is no measure of with
  EXPECT_EQ(level(), Likeness::kAnything);
}

TEST(ErrorBand, IsWiderForAGpuThatWasNotMeasured) {
  // Predictions for each GPU are off by something of its own, which loads of other GPUs cannot tell.
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    const ResidualTable table =
        made_up_table(made_up_residuals({.gpu = 0.3, .server = 0.01, .load = 0.01}, seed, 6));
    double known = 0;
    for (int g = 0; g < 6; ++g)
      known +=
          width(*error_band(table, Figure::kTpot, made_up_traits(fmt::format("gpu{}", g), "family0"))) / 6;
    EXPECT_GT(width(*error_band(table, Figure::kTpot, made_up_traits("gpu9", "family0"))), known) << seed;
  }
}

// A family on a GPU that nobody measured is off by as much as such pairs are: each counts once, whether it
// has one load or two hundred.
TEST(ErrorBand, OfAnUnknownPairCountsEachPairOnce) {
  std::vector<Residual> rows;
  const auto add = [&rows](const char* family, int loads, double ratio) {
    for (int l = 0; l < loads; ++l) {
      Residual& row = rows.emplace_back();
      row.server = fmt::format("{} {}", family, l % 3);
      row.load = fmt::format("load {}", l);
      row.traits = made_up_traits("gpu0", family);
      row.ratio.fill(ratio);
    }
  };
  add("known well", 200, 1.01);
  for (const char* family : {"a", "b", "c", "d", "e", "f", "g"}) add(family, 1, 1.2);
  add("far off", 2, 3);
  const Band band = *error_band(made_up_table(rows), Figure::kTpot, made_up_traits("gpu0", "unknown"));
  EXPECT_EQ(band.like, Likeness::kAnything);
  EXPECT_DOUBLE_EQ(band.high, 3);
  EXPECT_EQ(band.loads, 209U);
  // Of three pairs nothing is known of a fourth.
  std::erase_if(rows, [](const Residual& row) { return row.traits.family().size() == 1; });
  EXPECT_FALSE(error_band(made_up_table(rows), Figure::kTpot, made_up_traits("gpu0", "unknown")));
}

// Families and GPUs of the catalogue's loads, as if nobody had measured them: of each pair's loads the share
// inside, on average over pairs.
TEST(ErrorBand, TheCataloguesBandsHoldForFamiliesAndGpusLeftOut) {
  const ResidualTable& table = catalogue_residuals();
  for (const bool family_out : {true, false}) {
    for (std::size_t f = 0; f < kNumFigures; ++f) {
      std::map<std::string, Coverage> pairs;
      for (const Residual& row : table.rows) {
        if (row.ratio[f] <= 0) continue;
        const LeftOut left_out{.family = family_out ? row.traits.family() : std::string_view(),
                               .hardware = family_out ? std::string_view() : row.traits.hardware()};
        const Band band =
            error_band(table, static_cast<Figure>(f), row.traits, false, left_out).value_or(Band());
        Coverage& coverage = pairs[row.traits.family() + row.traits.hardware()];
        ++coverage.count;
        coverage.inside += row.ratio[f] >= band.low && row.ratio[f] <= band.high ? 1 : 0;
      }
      double sum = 0;
      for (const auto& [pair, coverage] : pairs) sum += coverage.share();
      EXPECT_GE(sum / static_cast<double>(pairs.size()), kCoverage) << kFigureNames[f] << family_out;
    }
  }
}

TEST(Residuals, SayWhetherAFamilyWasMetOnAGpu) {
  const ResidualTable table = made_up_table(made_up_residuals({.load = 0.1}, 1, 2, 1, 3, 5));
  EXPECT_EQ(met(table, "gpu0", "family0").loads, 30U);
  EXPECT_EQ(met(table, "gpu0", "family0").servers, 6U);
  EXPECT_EQ(met(table, "gpu9", "family0").loads, 0U);
  EXPECT_EQ(met(table, "gpu0", "family1").loads, 0U);
  // What the published rows added.
  EXPECT_GT(met(catalogue_residuals(), "b200", "Qwen3Moe").loads, 0U);
  EXPECT_GT(met(catalogue_residuals(), "h200-sxm", "GptOss").loads, 0U);
}

TEST(ErrorBand, IsNeverNarrowerForWhatWasCarriedOver) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const ResidualTable table =
        made_up_table(made_up_residuals({.gpu = 0.1, .family = 0.1, .server = 0.05, .load = 0.05}, seed));
    for (const char* gpu : {"gpu0", "gpu1", "gpu9"}) {
      for (const char* family : {"family0", "family1", "hybrid"}) {
        const proto::LoadTraits asked = made_up_traits(gpu, family);
        const Band measured = *error_band(table, Figure::kLatency, asked);
        const Band carried = *error_band(table, Figure::kLatency, asked, /*carried_over=*/true);
        EXPECT_LE(carried.low, measured.low);
        EXPECT_GE(carried.high, measured.high);
      }
    }
  }
}

TEST(ErrorBand, HoldsThePredictionAndGrowsWithTheErrors) {
  for (const double deviation : {0.0, 0.02, 0.1, 0.4}) {
    const ResidualTable table = made_up_table(made_up_residuals({.load = deviation}, 3));
    const Band band = *error_band(table, Figure::kDuration, made_up_traits("gpu0", "family0"));
    EXPECT_LT(band.low, 1);
    EXPECT_GT(band.high, 1);
    const Band wider = *error_band(made_up_table(made_up_residuals({.load = 2 * deviation + 0.05}, 3)),
                                   Figure::kDuration, made_up_traits("gpu0", "family0"));
    EXPECT_GT(width(wider), width(band));
  }
}

TEST(ErrorBand, OfTooFewLoadsThereIsNone) {
  std::vector<Residual> rows = made_up_residuals({.load = 0.1}, 1, 1, 1, 1, 4);  // two servers of four loads
  EXPECT_TRUE(error_band(made_up_table(rows), Figure::kTpot, rows[0].traits));
  while (rows.size() >= kFewestLoadsOfPair) rows.pop_back();
  EXPECT_FALSE(error_band(made_up_table(rows), Figure::kTpot, rows[0].traits));
  EXPECT_FALSE(
      error_band(ResidualTable{}, Figure::kTpot, rows.empty() ? proto::LoadTraits() : rows[0].traits));
}

TEST(ErrorBand, IsWrittenForEachFigureOfTheRun) {
  const ResidualTable table = made_up_table(made_up_residuals({.load = 0.1}, 1));
  proto::RunReport report;
  report.set_mean_ttft_ms(100);
  report.set_mean_tpot_ms(0);  // one token each: nothing to be off
  report.set_mean_e2e_latency_ms(2000);
  report.set_duration(60);
  const proto::ErrorBands bands =
      error_bands(table, made_up_traits("gpu0", "family0"), "", report).value_or(proto::ErrorBands());
  ASSERT_EQ(bands.bands_size(), 3);
  EXPECT_EQ(bands.coverage(), kCoverage);
  for (const proto::ErrorBand& band : bands.bands()) {
    EXPECT_LT(band.low(), band.predicted());
    EXPECT_GT(band.high(), band.predicted());
    EXPECT_GE(band.loads(), kFewestLoads);
    EXPECT_GE(band.servers(), kFewestServers);
  }
}

TEST(Residuals, AreTheSameAfterATripThroughText) {
  ResidualTable table = made_up_table(made_up_residuals({.load = 0.1}, 1));
  table.rows[3].ratio[2] = 0;  // not measured
  const std::string text = to_text(table);
  const ResidualTable again = parse_residuals(text);
  EXPECT_EQ(to_text(again), text);
  ASSERT_EQ(again.rows.size(), table.rows.size());
  EXPECT_EQ(again.rows[3].ratio[2], 0);
  EXPECT_NEAR(again.rows[3].ratio[1] / table.rows[3].ratio[1], 1, 1e-4);
  EXPECT_EQ(again.rows[3].traits.backend(), table.rows[3].traits.backend());
  EXPECT_THROW(parse_residuals("{}"), std::invalid_argument);
  EXPECT_THROW(parse_residuals("["), std::invalid_argument);
}

}  // namespace
}  // namespace tpsim::launch
