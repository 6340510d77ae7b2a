#include "launch/lab/calibrate/coefficient_fit.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tpsim::calibrate {
namespace {

using Vector = std::vector<double>;

constexpr double kDifference = 0.05;      // of a logarithm, for derivatives
constexpr double kToldShare = 1.0 / 3;    // of its width, that an unknown's deviation may be
constexpr double kHuber = 1.5;            // deviations of a row up to which its error counts in full
constexpr double kLeastDeviation = 0.02;  // of a row: formulas are never better
constexpr double kMostDeviation = 0.3;
constexpr double kRowDeviation = 0.04;  // that a fit takes its rows to have at most
// The deviation of rows is that of the nearest: of a normal distribution 30 % lie within 0.385 deviations.
// Loads that the formulas do not describe are a part of most measurements, and must not decide for the
// others.
constexpr double kNearShare = 0.3;
constexpr double kNearDeviation = 0.385;
constexpr double kLongestMove = 0.4;  // of a logarithm in one step: slopes hold nearby
constexpr int kSteps = 8;

Eigen::MatrixXd inverse(const Eigen::MatrixXd& matrix) {
  return matrix.ldlt().solve(Eigen::MatrixXd::Identity(matrix.rows(), matrix.cols()));
}

// The root of a cell of the diagonal.
double deviation_of(const Eigen::MatrixXd& matrix, std::size_t index) {
  const auto i = static_cast<Eigen::Index>(index);
  return std::sqrt(matrix(i, i));
}

// The value that `share` of the weight lies below. `values`: with their weights.
double weighted_quantile(std::vector<std::pair<double, double>> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  double wanted = 0;
  for (const auto& [value, weight] : values) wanted += share * weight;
  std::size_t i = 0;
  for (double sum = values[0].second; sum < wanted && i + 1 < values.size();) sum += values[++i].second;
  return values[i].first;
}

class Fit {
 public:
  Fit(const std::vector<Unknown>& unknowns, const Vector& weights, const Residuals& residuals)
      : unknowns_(unknowns),
        weights_(weights),
        residuals_(residuals),
        active_(unknowns.size(), true),
        x_(unknowns.size(), 0.0),
        r_(residuals(x_)),
        slopes_(unknowns.size(), Vector(r_.size(), 0.0)) {}

  CoefficientFit run() {
    descend(kSteps);
    CoefficientFit out;
    out.unknowns.resize(unknowns_.size());
    for (std::size_t untold = judge(out); untold != kNone; untold = judge(out)) {
      active_[untold] = false;
      x_[untold] = 0;
    }
    r_ = residuals_(x_);
    descend(kSteps);
    finish(out);
    return out;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::vector<std::size_t> active() const {
    std::vector<std::size_t> indices;
    for (std::size_t p = 0; p < active_.size(); ++p)
      if (active_[p]) indices.push_back(p);
    return indices;
  }

  // Of a row's logarithm, from the rows themselves.
  double deviation() const {
    std::vector<std::pair<double, double>> sizes;
    for (std::size_t i = 0; i < r_.size(); ++i)
      if (weights_[i] > 0 && std::isfinite(r_[i])) sizes.emplace_back(std::abs(r_[i]), weights_[i]);
    return std::clamp(weighted_quantile(std::move(sizes), kNearShare) / kNearDeviation, kLeastDeviation,
                      kMostDeviation);
  }

  static double loss_of(double deviations) {
    const double size = std::abs(deviations);
    return size <= kHuber ? 0.5 * size * size : kHuber * (size - 0.5 * kHuber);
  }
  // Of the rows at hand: one without a prediction costs as much as one that is just not far off.
  double loss(const Vector& x, const Vector& r, double s) const {
    double sum = 0;
    for (std::size_t i = 0; i < r.size(); ++i)
      if (weights_[i] > 0) sum += weights_[i] * loss_of(std::isfinite(r[i]) ? r[i] / s : kHuber);
    for (std::size_t p = 0; p < x.size(); ++p) sum += 0.5 * std::pow(x[p] / unknowns_[p].width, 2);
    return sum;
  }

  void differentiate() {
    for (const std::size_t p : active()) {
      Vector there = x_;
      const double step = x_[p] + kDifference <= unknowns_[p].highest ? kDifference : -kDifference;
      there[p] += step;
      Vector slope = residuals_(there);
      for (std::size_t i = 0; i < slope.size(); ++i) {
        slope[i] = (slope[i] - r_[i]) / step;
        if (!std::isfinite(slope[i])) slope[i] = 0;
      }
      slopes_[p] = std::move(slope);
    }
  }

  // What the rows and the widths say of the active ones; `robust`: with Huber's weights.
  Eigen::MatrixXd normal_matrix(const std::vector<std::size_t>& indices, double s,
                                Eigen::VectorXd* right) const {
    const auto size = static_cast<Eigen::Index>(indices.size());
    Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(size, size);
    for (std::size_t i = 0; i < r_.size(); ++i) {
      if (weights_[i] <= 0 || !std::isfinite(r_[i])) continue;
      const double far = std::abs(r_[i]) / (kHuber * s);
      const double weight = weights_[i] / (s * s) / std::max(1.0, far);
      Eigen::VectorXd slope(size);
      for (Eigen::Index a = 0; a < size; ++a) slope[a] = slopes_[indices[static_cast<std::size_t>(a)]][i];
      matrix += weight * slope * slope.transpose();
      if (right != nullptr) *right -= weight * r_[i] * slope;
    }
    for (Eigen::Index a = 0; a < size; ++a) {
      const std::size_t p = indices[static_cast<std::size_t>(a)];
      const double width = unknowns_[p].width;
      matrix(a, a) += 1 / (width * width);
      if (right != nullptr) (*right)[a] -= x_[p] / (width * width);
    }
    return matrix;
  }

  void descend(int steps) {
    for (int step = 0; step < steps; ++step) {
      const std::vector<std::size_t> indices = active();
      if (indices.empty()) return;
      differentiate();
      // From wide to narrow: at first every row counts, and only what stays far off is an outlier.
      const double wide = kMostDeviation * std::ldexp(1.0, -step);
      const bool narrow = wide <= kRowDeviation;
      // Not by what is left: rows that are all far off would be believed less than the profile.
      const double s = narrow ? std::min(kRowDeviation, deviation()) : wide, now = loss(x_, r_, s);
      Eigen::VectorXd move = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(indices.size()));
      const Eigen::MatrixXd matrix = normal_matrix(indices, s, &move);
      move = matrix.ldlt().solve(move);
      double moved = 0;
      bool better = false;
      for (double share = 1; share > 0.02 && !better; share /= 2) {
        Vector there = x_;
        moved = 0;
        for (std::size_t a = 0; a < indices.size(); ++a) {
          const Unknown& unknown = unknowns_[indices[a]];
          double& value = there[indices[a]];
          const double before = value;
          const double whole = std::clamp(move[static_cast<Eigen::Index>(a)], -kLongestMove, kLongestMove);
          value = std::clamp(value + share * whole, unknown.lowest, unknown.highest);
          moved = std::max(moved, std::abs(value - before));
        }
        Vector r = residuals_(there);
        better = loss(there, r, s) < now;
        if (better) {
          x_ = std::move(there);
          r_ = std::move(r);
        }
      }
      if (narrow && (!better || moved < 0.003)) return;
    }
  }

  // Writes what is known of the active ones, and returns the one to be given up, if any.
  std::size_t judge(CoefficientFit& out) {
    const std::vector<std::size_t> indices = active();
    if (indices.empty()) return kNone;
    const double s = deviation();
    const Eigen::MatrixXd matrix = normal_matrix(indices, s, nullptr);
    const Eigen::MatrixXd covariance = inverse(matrix);
    std::size_t worst = kNone;
    double worst_share = kToldShare;
    for (std::size_t a = 0; a < indices.size(); ++a) {
      const double width = unknowns_[indices[a]].width;
      out.unknowns[indices[a]].deviation = deviation_of(covariance, a);
      const double share = out.unknowns[indices[a]].deviation / width;
      if (share <= worst_share) continue;
      worst_share = share;
      worst = a;
    }
    if (worst == kNone) return kNone;
    out.unknowns[indices[worst]].reason = reason(indices, worst, matrix, covariance);
    return indices[worst];
  }

  std::string reason(const std::vector<std::size_t>& indices, std::size_t worst,
                     const Eigen::MatrixXd& matrix, const Eigen::MatrixXd& covariance) const {
    const double width = unknowns_[indices[worst]].width;
    const double alone = 1 / deviation_of(matrix, worst) / width;
    if (alone > kToldShare || indices.size() == 1) {
      double most = 0;
      for (std::size_t i = 0; i < r_.size(); ++i)
        if (weights_[i] > 0) most = std::max(most, std::abs(slopes_[indices[worst]][i]));
      return fmt::format("10 % more of it moves the row that feels it most by {:.2g} %",
                         100 * (std::exp(0.1 * most) - 1));
    }
    std::size_t other = worst == 0 ? 1 : 0;
    const auto correlation = [&](std::size_t b) {
      const double shared = covariance(static_cast<Eigen::Index>(worst), static_cast<Eigen::Index>(b));
      return std::abs(shared) / (deviation_of(covariance, worst) * deviation_of(covariance, b));
    };
    for (std::size_t b = 0; b < indices.size(); ++b)
      if (b != worst && correlation(b) > correlation(other)) other = b;
    return fmt::format("these rows do not tell it from {}", unknowns_[indices[other]].name);
  }

  void finish(CoefficientFit& out) {
    const std::vector<std::size_t> indices = active();
    if (!indices.empty()) {
      const Eigen::MatrixXd covariance = inverse(normal_matrix(indices, deviation(), nullptr));
      for (std::size_t a = 0; a < indices.size(); ++a)
        out.unknowns[indices[a]].deviation = deviation_of(covariance, a);
    }
    for (std::size_t p = 0; p < x_.size(); ++p) {
      FittedUnknown& unknown = out.unknowns[p];
      unknown.told = active_[p];
      unknown.logarithm = x_[p];
      for (const double slope : slopes_[p]) unknown.felt.push_back(std::abs(slope) > 0.05);
      if (!active_[p]) continue;
      unknown.reason.clear();
      unknown.at_bound = x_[p] <= unknowns_[p].lowest + 1e-9 || x_[p] >= unknowns_[p].highest - 1e-9;
    }
    out.residuals = r_;
  }

  const std::vector<Unknown>& unknowns_;
  const Vector& weights_;
  const Residuals& residuals_;
  std::vector<bool> active_;
  Vector x_, r_;
  std::vector<Vector> slopes_;  // of each unknown, by row
};

}  // namespace

CoefficientFit fit_coefficients(const std::vector<Unknown>& unknowns, const std::vector<double>& weights,
                                const Residuals& residuals) {
  return Fit(unknowns, weights, residuals).run();
}

}  // namespace tpsim::calibrate
