#include "launch/lab/calibrate/surface_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kFeatures[] = {"m", "n", "k"};

// Rows over m and k whose true factor is smooth, with noise, and one in ten of them nonsense.
std::vector<SurfaceRow> rows(std::size_t count, double noise, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<> normal(0, noise);
  std::vector<SurfaceRow> out;
  for (std::size_t i = 0; i < count; ++i) {
    const auto draw = [&](double least, double most) {
      return std::exp(std::uniform_real_distribution<>(std::log(least), std::log(most))(random));
    };
    const double m = draw(1, 4096);
    const double k = draw(256, 16384);
    const double truth = 1 + 0.5 * std::sin(std::log2(m) / 3) + 0.03 * (std::log2(k) - 11);
    SurfaceRow row{{m, 1024, k}, truth * std::exp(normal(random)), 1};
    if (random() % 10 == 0) row.ratio *= 4;
    out.push_back(row);
  }
  return out;
}

double median_error(const CorrectionSurface& surface, const std::vector<SurfaceRow>& held) {
  std::vector<double> ratios;
  for (const SurfaceRow& row : held) ratios.push_back(row.ratio / surface.factor(row.features));
  return relative_errors(ratios).median;
}

TEST(SurfaceFit, FindsASmoothTruthUnderNoiseAndOutliers) {
  const auto seen = rows(2000, 0.05, 1);
  const std::vector<SurfaceAxis> axes = {axis_of(seen, kFeatures, "m", 12), axis_of(seen, kFeatures, "k", 4)};
  const CorrectionSurface surface(fit_surface(seen, kFeatures, axes), kFeatures);
  for (const SurfaceRow& row : rows(500, 0, 2)) {
    const double truth =
        1 + 0.5 * std::sin(std::log2(row.features[0]) / 3) + 0.03 * (std::log2(row.features[2]) - 11);
    EXPECT_NEAR(surface.factor(row.features) / truth, 1, 0.12) << row.features[0] << " " << row.features[2];
  }
  EXPECT_LT(median_error(surface, rows(1000, 0.05, 3)), 0.05);
}

TEST(SurfaceFit, SaysNothingWhereTheFormulaIsRight) {
  auto exact = rows(300, 0, 4);
  for (SurfaceRow& row : exact) row.ratio = 1;
  const std::vector<SurfaceAxis> axes = {axis_of(exact, kFeatures, "m", 8)};
  const auto fitted = fit_surface(exact, kFeatures, axes);
  for (const auto factor : fitted.factors()) EXPECT_EQ(factor, 1000U);
}

TEST(SurfaceFit, PointsWithoutRowsTakeAfterTheirNeighbours) {
  std::vector<SurfaceRow> few;
  for (const double m : {1.0, 2.0, 4.0}) few.push_back({{m, 1, 1}, 2.0, 1});
  const std::vector<SurfaceAxis> axes = {{"m", {1, 4, 64, 1024}}};
  const auto fitted = fit_surface(few, kFeatures, axes);
  for (const auto factor : fitted.factors()) EXPECT_NEAR(factor, 2000, 20);
}

TEST(SurfaceFit, SmoothnessDecidesHowMuchOneRowIsBelieved) {
  auto seen = rows(400, 0, 5);
  for (SurfaceRow& row : seen) row.ratio = row.features[0] > 500 && row.features[0] < 1000 ? 2 : 1;
  const std::vector<SurfaceAxis> axes = {axis_of(seen, kFeatures, "m", 16)};
  const auto greatest = [&](double smoothness) {
    const auto fitted = fit_surface(seen, kFeatures, axes, {smoothness, 0.2, 5});
    return *std::max_element(fitted.factors().begin(), fitted.factors().end());
  };
  EXPECT_GT(greatest(0.01), 1800U);
  EXPECT_LT(greatest(1000), 1300U);
}

TEST(SurfaceFit, IsTheSameEachTime) {
  const auto seen = rows(500, 0.1, 6);
  const std::vector<SurfaceAxis> axes = {axis_of(seen, kFeatures, "m", 10), axis_of(seen, kFeatures, "k", 5)};
  EXPECT_EQ(fit_surface(seen, kFeatures, axes).SerializeAsString(),
            fit_surface(seen, kFeatures, axes).SerializeAsString());
}

TEST(SurfaceFit, RefusesNoRowsAndUnknownFeatures) {
  EXPECT_THROW(fit_surface({}, kFeatures, {}), std::invalid_argument);
  const auto seen = rows(5, 0, 7);
  const std::vector<SurfaceAxis> wrong = {{"rows", {1, 2}}};
  EXPECT_THROW(fit_surface(seen, kFeatures, wrong), std::invalid_argument);
}

TEST(AxisPoints, AreAllValuesWhereTheyAreFewAndSpreadElse) {
  constexpr std::string_view kFeature[] = {"of"};
  std::vector<SurfaceRow> rows;
  for (const double value : {128, 64, 128, 256}) rows.push_back({{value}});
  EXPECT_THAT(axis_of(rows, kFeature, "of", 5).points, ElementsAre(64, 128, 256));
  for (int i = 1; i <= 100; ++i) rows.push_back({{256.0 + i}});
  EXPECT_THAT(axis_of(rows, kFeature, "of", 4).points, ElementsAre(64, 288, 322, 356));
}

}  // namespace
}  // namespace tpsim::calibrate
