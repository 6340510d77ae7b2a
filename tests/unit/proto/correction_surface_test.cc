#include "proto/correction_surface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

namespace tpsim {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kFeatures[] = {"m", "n", "k"};

proto::CorrectionSurface surface(const std::vector<std::pair<std::string, std::vector<double>>>& axes,
                                 const std::vector<std::uint32_t>& factors) {
  proto::CorrectionSurface out;
  for (const auto& [feature, points] : axes) {
    auto& axis = *out.add_axes();
    axis.set_feature(feature);
    axis.mutable_points()->Add(points.begin(), points.end());
  }
  out.mutable_factors()->Add(factors.begin(), factors.end());
  return out;
}

TEST(Octaves, AreExactAtPowersOfTwoAndAscend) {
  for (int i = -30; i <= 60; ++i) EXPECT_EQ(octaves(std::ldexp(1.0, i)), i);
  EXPECT_EQ(octaves(3), 1.5);
  double last = octaves(0.1);
  for (double x = 0.11; x < 100; x *= 1.01) {
    EXPECT_GT(octaves(x), last);
    last = octaves(x);
  }
}

TEST(CorrectionSurface, GivesItsPointsAndTheWayBetweenThem) {
  const CorrectionSurface s(surface({{"k", {1, 4}}, {"m", {1, 2, 8}}}, {1000, 2000, 3000, 500, 600, 700}),
                            kFeatures);
  const auto at = [&](double m, double k) { return s.factor(std::vector<double>{m, 99, k}); };
  EXPECT_DOUBLE_EQ(at(1, 1), 1.0);
  EXPECT_DOUBLE_EQ(at(2, 1), 2.0);
  EXPECT_DOUBLE_EQ(at(8, 4), 0.7);
  EXPECT_DOUBLE_EQ(at(4, 1), 2.5);
  EXPECT_DOUBLE_EQ(at(1, 2), 0.75);
  EXPECT_DOUBLE_EQ(at(4, 2), (2.5 + 0.65) / 2);
  // Beyond the grid: its edge.
  EXPECT_DOUBLE_EQ(at(1000, 1000), 0.7);
  EXPECT_DOUBLE_EQ(at(0, 1), 1.0);
}

TEST(CorrectionSurface, StaysBetweenItsLeastAndGreatestFactorAndIsContinuous) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> factors(4 * 3 * 2);
  for (auto& f : factors) f = 500 + random() % 1500;
  const CorrectionSurface s(
      surface({{"m", {1, 3, 17, 200}}, {"n", {64, 1000, 4096}}, {"k", {128, 8192}}}, factors), kFeatures);
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  for (int i = 0; i < 20000; ++i) {
    const auto draw = [&](double limit) {
      return std::exp(std::uniform_real_distribution<>(0, std::log(limit))(random));
    };
    const std::vector<double> x = {draw(1000), draw(20000), draw(20000)};
    const double f = s.factor(x);
    EXPECT_GE(f, *least / 1000.0 - 1e-9);
    EXPECT_LE(f, *most / 1000.0 + 1e-9);
    const std::vector<double> near = {x[0] * (1 + 1e-9), x[1] * (1 + 1e-9), x[2] * (1 - 1e-9)};
    EXPECT_NEAR(s.factor(near), f, 1e-6);
  }
}

TEST(CorrectionSurface, RefusesWhatIsNoGrid) {
  const auto fails = [](const proto::CorrectionSurface& wrong, const char* words) {
    try {
      CorrectionSurface made(wrong, kFeatures);
      FAIL() << "expected: " << words;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  fails(surface({{"rows", {1, 2}}}, {1000, 1000}), "no feature is called rows");
  fails(surface({{"m", {2, 1}}}, {1000, 1000}), "do not ascend");
  fails(surface({{"m", {0, 1}}}, {1000, 1000}), "not above 0");
  fails(surface({{"m", {}}}, {}), "without points");
  fails(surface({{"m", {1, 2}}, {"n", {1, 2}}}, {1000, 1000}), "each of its 4 points");
}

TEST(Corrections, MultiplyAndAreOneWithoutAny) {
  proto::OperatorEfficiency entry;
  *entry.add_corrections() = surface({{"m", {1, 2}}}, {1000, 2000});
  *entry.add_corrections() = surface({{"n", {1, 2}}}, {1500, 500});
  const Corrections c(&entry, kFeatures);
  EXPECT_DOUBLE_EQ(c.factor(std::vector<double>{2, 1, 1}), 3.0);
  EXPECT_TRUE(Corrections(nullptr, kFeatures).empty());
  EXPECT_DOUBLE_EQ(Corrections().factor(std::vector<double>{2, 1, 1}), 1.0);
}

}  // namespace
}  // namespace tpsim
