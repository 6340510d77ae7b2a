// Known coefficients come back from rows made of them, and what rows cannot tell is said.
#include "launch/lab/calibrate/coefficient_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tpsim::calibrate {
namespace {

// Rows of a made-up machine: seconds = sum over the coefficients of value x work.
struct Machine {
  std::vector<std::vector<double>> work;  // of each row, by coefficient
  std::vector<double> measured;

  std::vector<double> log_ratios(const std::vector<double>& values) const {
    std::vector<double> out;
    for (std::size_t i = 0; i < work.size(); ++i) {
      double seconds = 0;
      for (std::size_t p = 0; p < values.size(); ++p) seconds += values[p] * work[i][p];
      out.push_back(std::log(seconds / measured[i]));
    }
    return out;
  }
  Residuals residuals(std::vector<double> before) const {
    return [this, before](const std::vector<double>& logarithms) {
      std::vector<double> values = before;
      for (std::size_t p = 0; p < values.size(); ++p) values[p] *= std::exp(logarithms[p]);
      return log_ratios(values);
    };
  }
};

Machine machine(const std::vector<double>& truth, std::size_t rows, double noise, std::mt19937& random) {
  std::uniform_real_distribution<double> exponent(-3, 3);
  std::normal_distribution<double> error(0, noise);
  Machine out;
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<double> work;
    double seconds = 0;
    for (const double value : truth) {
      work.push_back(std::exp(exponent(random)));
      seconds += value * work.back();
    }
    out.work.push_back(work);
    out.measured.push_back(seconds * std::exp(error(random)));
  }
  return out;
}

std::vector<Unknown> unknowns(std::size_t count) {
  std::vector<Unknown> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back({"c" + std::to_string(i), 0.5, -1.5, 1.5});
  return out;
}

TEST(CoefficientFit, FindsWhatTheRowsWereMadeOf) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> spoilt(-0.5, 0.5);
  for (int round = 0; round < 20; ++round) {
    const std::vector<double> truth = {1, 2, 0.5, 1.5};
    Machine rows = machine(truth, 120, 0.02, random);
    // One row in twenty is an outlier.
    for (std::size_t i = 0; i < rows.measured.size(); i += 20) rows.measured[i] *= 4;
    std::vector<double> before, wanted;
    for (const double value : truth) {
      wanted.push_back(-spoilt(random));
      before.push_back(value * std::exp(-wanted.back()));
    }
    const CoefficientFit fit =
        fit_coefficients(unknowns(4), std::vector<double>(120, 1.0), rows.residuals(before));
    for (std::size_t p = 0; p < truth.size(); ++p) {
      EXPECT_TRUE(fit.unknowns[p].told) << fit.unknowns[p].reason;
      EXPECT_NEAR(fit.unknowns[p].logarithm, wanted[p], 0.03) << round;
      EXPECT_GT(fit.unknowns[p].deviation, 0);
      EXPECT_LT(std::abs(fit.unknowns[p].logarithm - wanted[p]), 5 * fit.unknowns[p].deviation);
    }
  }
}

TEST(CoefficientFit, SaysWhatNoRowFeels) {
  std::mt19937 random(6);
  Machine rows = machine({1, 1}, 40, 0.02, random);
  for (std::vector<double>& work : rows.work) work[1] = 1e-6;
  for (std::size_t i = 0; i < rows.work.size(); ++i) rows.measured[i] = rows.work[i][0];
  const CoefficientFit fit =
      fit_coefficients(unknowns(2), std::vector<double>(40, 1.0), rows.residuals({1.3, 1}));
  EXPECT_TRUE(fit.unknowns[0].told);
  EXPECT_NEAR(fit.unknowns[0].logarithm, -std::log(1.3), 1e-3);
  EXPECT_FALSE(fit.unknowns[1].told);
  EXPECT_EQ(fit.unknowns[1].logarithm, 0);
  EXPECT_NE(fit.unknowns[1].reason.find("moves the row"), std::string::npos);
}

TEST(CoefficientFit, SaysWhichTwoItCannotTellApart) {
  std::mt19937 random(7);
  Machine rows = machine({1, 1, 1}, 60, 0.02, random);
  for (std::size_t i = 0; i < rows.work.size(); ++i) {
    rows.work[i][2] = 0.5 * rows.work[i][1];  // always together
    rows.measured[i] = rows.work[i][0] + 1.2 * (rows.work[i][1] + rows.work[i][2]);
  }
  const CoefficientFit fit =
      fit_coefficients(unknowns(3), std::vector<double>(60, 1.0), rows.residuals({1.1, 1, 1}));
  EXPECT_TRUE(fit.unknowns[0].told);
  ASSERT_NE(fit.unknowns[1].told, fit.unknowns[2].told);
  const std::size_t left = fit.unknowns[1].told ? 2 : 1;
  EXPECT_NE(fit.unknowns[left].reason.find(left == 1 ? "c2" : "c1"), std::string::npos)
      << fit.unknowns[left].reason;
  for (const double residual : fit.residuals) EXPECT_NEAR(residual, 0, 0.02);
}

TEST(CoefficientFit, StaysWithinBoundsAndSaysSo) {
  std::mt19937 random(8);
  Machine rows = machine({1}, 20, 0.01, random);
  std::vector<Unknown> bounded = {{"share", 0.5, -1, 0.1}};
  const CoefficientFit fit =
      fit_coefficients(bounded, std::vector<double>(20, 1.0), rows.residuals({1 / 1.5}));
  EXPECT_TRUE(fit.unknowns[0].told);
  EXPECT_TRUE(fit.unknowns[0].at_bound);
  EXPECT_NEAR(fit.unknowns[0].logarithm, 0.1, 1e-9);
}

// Rows without weight are looked at and change nothing; those without a prediction neither.
TEST(CoefficientFit, IsOfTheRowsWithAWeightAlone) {
  std::mt19937 random(9);
  Machine rows = machine({1, 1}, 50, 0.02, random);
  std::vector<double> weights(50, 1.0);
  for (std::size_t i = 0; i < 50; i += 5) weights[i] = 0;
  const auto fitted = [&](const Machine& of, bool gaps) {
    return fit_coefficients(unknowns(2), weights, [&, gaps](const std::vector<double>& logarithms) {
      std::vector<double> out = of.residuals({1.2, 0.9})(logarithms);
      if (gaps) out[1] = std::numeric_limits<double>::quiet_NaN();
      return out;
    });
  };
  const CoefficientFit first = fitted(rows, false);
  Machine other = rows;
  for (std::size_t i = 0; i < 50; i += 5) other.measured[i] *= 100;
  const CoefficientFit second = fitted(other, false);
  EXPECT_EQ(first.unknowns[0].logarithm, second.unknowns[0].logarithm);
  EXPECT_EQ(first.unknowns[1].logarithm, second.unknowns[1].logarithm);
  const CoefficientFit third = fitted(rows, true);
  EXPECT_NEAR(third.unknowns[0].logarithm, std::log(1 / 1.2), 0.05);
}

}  // namespace
}  // namespace tpsim::calibrate
