#include "launch/lab/calibrate/serving_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "launch/lab/served/error_figures.h"
#include "proto/base/error.h"

namespace tpsim::calibrate {
namespace {

constexpr std::size_t kFewRows = 5;  // whose errors say little
constexpr double kFarOff = 0.7;      // of a logarithm
constexpr double kNoError = 0.001;   // a fit's, that comes out as none: 0 would mean that there was no fit

template <typename Wanted>
proto::ErrorFigures errors_of(const std::vector<double>& residuals, Wanted wanted) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < residuals.size(); ++i)
    if (std::isfinite(residuals[i]) && wanted(i)) ratios.push_back(std::exp(residuals[i]));
  return launch::error_figures(ratios);
}

// Weighted mean of the rows held out, of which one that is far off is no worse than another.
double deviation_held_out(const std::vector<ServingRow>& rows, const std::vector<double>& residuals) {
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].held_out || !std::isfinite(residuals[i])) continue;
    sum += rows[i].weight * std::min(std::abs(residuals[i]), kFarOff);
    weights += rows[i].weight;
  }
  return weights > 0 ? sum / weights : 0;
}

// Writes source and error of the value that was just set.
void write_source(const CoefficientChange& change, const std::string& source,
                  proto::HardwareProfile& profile) {
  const double median = std::max(change.left.median(), kNoError), p90 = std::max(change.left.p90(), kNoError);
  const std::string& name = change.coefficient.field;
  const bool constant = change.coefficient.operator_class.empty();
  const std::string what = fmt::format("{}: {} rows", source, change.rows);
  const auto put_constant = [&](const std::string& of) {
    auto& fits = *profile.mutable_constant_fits();
    auto fit = std::find_if(fits.begin(), fits.end(),
                            [&of](const proto::ConstantFit& known) { return known.constant() == of; });
    proto::ConstantFit& out = fit == fits.end() ? *fits.Add() : *fit;
    out.set_constant(of);
    out.set_median_error(median);
    out.set_source(what);
  };
  if (constant) return put_constant(name);
  for (proto::OperatorEfficiency& entry : *profile.mutable_efficiencies()) {
    if (entry.operator_class() != change.coefficient.operator_class) continue;
    if (entry.parameters().contains(name))
      return put_constant(change.coefficient.operator_class + "." + name);
    const bool again = entry.source().find(source) != std::string::npos;
    entry.set_source(again ? fmt::format("{}; {} by the same", entry.source(), name)
                           : fmt::format("{} by {}{}", name, what,
                                         entry.source().empty() ? "" : "; the rest: " + entry.source()));
    entry.set_median_error(median);
    entry.set_p90_error(p90);
  }
}

}  // namespace

ServingFit fit_serving(ServingRows& rows, const proto::HardwareProfile& profile, const std::string& source,
                       std::uint32_t threads, const std::function<void()>& on_served) {
  const std::vector<ServingRow>& all = rows.rows();
  std::vector<double> weights;
  ServingFit out;
  for (const ServingRow& row : all) {
    weights.push_back(row.held_out ? 0 : row.weight);
    ++(row.held_out ? out.held_out : out.rows);
  }
  if (out.rows < kLeastFitRows)
    throw_user_error(
        "--from: {} rows to fit are too few; at least {} are needed, such as steps of different sizes in "
        "logs of several loads",
        out.rows, kLeastFitRows);
  const std::vector<Coefficient> coefficients = rows.coefficients(profile);
  const auto residuals = [&](const std::vector<double>& logarithms) {
    return rows.log_ratios(profile, coefficients, logarithms, threads, on_served);
  };
  const std::vector<double> before = residuals(std::vector<double>(coefficients.size(), 0.0));
  CoefficientFit fit = fit_coefficients(unknowns_of(coefficients, profile), weights, residuals);
  out.worse = deviation_held_out(all, fit.residuals) >= deviation_held_out(all, before);
  if (out.worse) {
    fit.residuals = before;
    for (FittedUnknown& unknown : fit.unknowns) {
      if (unknown.told) unknown.reason = "rows held out come no closer with what the others say of it";
      unknown.told = false;
      unknown.logarithm = 0;
    }
  }
  std::vector<double> logarithms;
  for (const FittedUnknown& unknown : fit.unknowns) logarithms.push_back(unknown.logarithm);
  out.profile = with_factors(profile, coefficients, logarithms);
  for (std::size_t c = 0; c < coefficients.size(); ++c) {
    CoefficientChange change{coefficients[c],
                             value_of(profile, coefficients[c]).value(),
                             value_of(out.profile, coefficients[c]).value(),
                             fit.unknowns[c],
                             0,
                             {}};
    const std::vector<bool>& felt = change.fitted.felt;
    for (std::size_t i = 0; i < all.size(); ++i) change.rows += felt[i] && !all[i].held_out ? 1 : 0;
    change.left = errors_of(fit.residuals, [&](std::size_t i) { return felt[i] && all[i].held_out; });
    if (change.left.count() < kFewRows)
      change.left = errors_of(fit.residuals, [&](std::size_t i) { return felt[i]; });
    if (change.fitted.told) write_source(change, source, out.profile);
    out.changes.push_back(std::move(change));
  }
  using Kind = ServingRow::Kind;
  for (const Kind kind : {Kind::kDecode, Kind::kPrefill, Kind::kFirstToken, Kind::kPerToken}) {
    const auto wanted = [&](std::size_t i) { return all[i].kind == kind && all[i].held_out; };
    const KindErrors errors{kind, errors_of(before, wanted), errors_of(fit.residuals, wanted)};
    if (errors.before.count() > 0) out.errors.push_back(errors);
  }
  return out;
}

}  // namespace tpsim::calibrate
