#include "launch/lab/calibrate/serving_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "launch/lab/kernels/attention_rows.h"
#include "launch/lab/served/batch_comparison.h"
#include "launch/simulation/parallel_loop.h"
#include "proto/base/error.h"

namespace tpsim::calibrate {
namespace {

using launch::MeasuredBatch;
using launch::MeasuredStep;
using Kind = ServingRow::Kind;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kFewPrefills = 3;
constexpr double kFirstTokenWeight = 0.5;  // waiting in queues is in it, too
constexpr double kHalfWeight = 3;          // steps that weigh half of what very many do
constexpr double kLoadWeight = 3;          // of all rows of a load: what one does wrong, its others do, too
constexpr double kHiccup = 5;
constexpr std::size_t kEveryHeldOut = 4;
constexpr std::size_t kManyLoads = 8;  // of which whole ones can be held out

std::string name_of(const launch::MeasuredLoad& load) {
  return load.id.empty() ? load.server + " " + load.load : load.id;
}

int octaves(double value, int per_octave) {
  return value <= 1 ? 0 : static_cast<int>(std::floor(per_octave * std::log2(value)));
}

std::vector<std::string> on_hardware(std::vector<std::string> flags, const std::string& hardware) {
  for (std::size_t i = 0; i + 1 < flags.size(); ++i)
    if (flags[i] == "--hardware") flags[i + 1] = hardware;
  return flags;
}

// Of the steps at these positions: seconds predicted over seconds measured, of all that have a counterpart,
// but for those that took many times as long as most.
double log_ratio(const std::vector<MeasuredStep>& steps, const std::vector<std::size_t>& positions) {
  std::vector<double> seconds;
  for (const std::size_t i : positions)
    if (steps[i].predicted > 0) seconds.push_back(steps[i].seconds);
  if (seconds.empty()) return kNone;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  double measured = 0, predicted = 0;
  for (const std::size_t i : positions) {
    if (steps[i].predicted <= 0 || steps[i].seconds > kHiccup * *middle) continue;
    measured += steps[i].seconds;
    predicted += steps[i].predicted;
  }
  return std::log(predicted / measured);
}

double log_ratio(const std::optional<double>& measured, const std::optional<double>& predicted) {
  return measured && predicted && *measured > 0 && *predicted > 0 ? std::log(*predicted / *measured) : kNone;
}

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

std::string to_string(Kind kind) {
  constexpr const char* kNames[] = {"decode step", "prefill", "time to the first token", "time per token"};
  return kNames[static_cast<std::size_t>(kind)];
}

ServingRows::ServingRows(std::vector<launch::MeasuredLoad> loads, const std::string& hardware) {
  for (launch::MeasuredLoad& load : loads) {
    if (!load.refusal.empty()) {
      refused_.push_back({name_of(load), load.refusal});
      continue;
    }
    try {
      auto servable = std::make_unique<launch::ServableLoad>(load, on_hardware(load.flags, hardware));
      std::vector<Coefficient> coefficients = coefficients_of_run(servable->deployment().header);
      served_.push_back({std::move(load), std::move(servable), std::move(coefficients), {}, {}});
    } catch (const UserError& error) {
      refused_.push_back({name_of(load), error.what()});
    }
  }
  for (std::size_t load = 0; load < served_.size(); ++load) add_rows(load);
  hold_out();
}

void ServingRows::add_rows(std::size_t load) {
  Served& served = served_[load];
  const std::vector<MeasuredBatch>& batches = served.measured.batches;
  std::map<std::tuple<Kind, int, int>, ServingRow> found;
  const auto put = [&](Kind kind, int first, int second, std::size_t step) {
    ServingRow& row = found[{kind, first, second}];
    row.load = load;
    row.kind = kind;
    row.steps.push_back(step);
  };
  const std::vector<MeasuredStep> decodes = launch::decode_steps(batches);
  for (std::size_t i = 0; i < decodes.size(); ++i) {
    const MeasuredBatch& batch = batches[decodes[i].first];
    put(Kind::kDecode, octaves(batch.running, 2), octaves(static_cast<double>(batch.kv_tokens), 1), i);
  }
  const std::vector<MeasuredStep> prefills = launch::prefill_steps(batches);
  for (std::size_t i = 0; i < prefills.size(); ++i) {
    double tokens = 0;
    for (std::size_t k = 0; k < prefills[i].count; ++k)
      tokens += static_cast<double>(batches[prefills[i].first + k].new_tokens);
    put(Kind::kPrefill, octaves(tokens, 2), 0, i);
  }
  for (auto& [key, row] : found) {
    const auto steps = static_cast<double>(row.steps.size());
    row.weight = steps / (steps + kHalfWeight);
    rows_.push_back(std::move(row));
  }
  if (prefills.size() < kFewPrefills && served.measured.measured.ttft_ms)
    rows_.push_back({load, Kind::kFirstToken, {}, kFirstTokenWeight, false});
  if (decodes.empty() && served.measured.measured.tpot_ms)
    rows_.push_back({load, Kind::kPerToken, {}, 1, false});
  double weight = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].load != load) continue;
    served.rows.push_back(i);
    weight += rows_[i].weight;
  }
  for (const std::size_t i : served.rows) rows_[i].weight *= std::min(1.0, kLoadWeight / weight);
}

// Whole loads where there are some, for the steps of one resemble each other; else rows.
void ServingRows::hold_out() {
  std::vector<std::size_t> order(served_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto key = [this](std::size_t load) { return kernels::hash_of(name_of(served_[load].measured)); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  const bool whole = served_.size() >= kManyLoads;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (whole && i % kEveryHeldOut != kEveryHeldOut - 1) continue;
    const std::vector<std::size_t>& rows = served_[order[i]].rows;
    for (std::size_t k = 0; k < rows.size(); ++k)
      rows_[rows[k]].held_out = whole || k % kEveryHeldOut == kEveryHeldOut - 1;
  }
}

std::uint64_t ServingRows::num_steps() const {
  std::uint64_t steps = 0;
  for (const ServingRow& row : rows_) steps += row.steps.size();
  return steps;
}

std::vector<Coefficient> ServingRows::coefficients(const proto::HardwareProfile& profile) const {
  std::vector<Coefficient> out;
  for (const Served& load : served_) {
    for (const Coefficient& coefficient : load.coefficients) {
      if (std::find(out.begin(), out.end(), coefficient) != out.end()) continue;
      if (value_of(profile, coefficient).value_or(0) > 0) out.push_back(coefficient);
    }
  }
  return out;
}

launch::LoadRecords ServingRows::records_of(const Served& load, const proto::HardwareProfile& profile,
                                            const std::atomic<bool>& stop) const {
  launch::Deployment deployment = load.servable->deployment();
  deployment.price_by(profile);
  launch::LoadRecords records(stop);
  load.servable->serve(deployment, records);
  return records;
}

launch::MeasuredFigures ServingRows::figures(std::size_t load, const proto::HardwareProfile& profile,
                                             const std::atomic<bool>& stop) const {
  return records_of(served_[load], profile, stop).figures();
}

std::vector<double> ServingRows::serve(const Served& load, const proto::HardwareProfile& profile,
                                       const std::atomic<bool>& stop) const {
  const launch::LoadRecords records = records_of(load, profile, stop);
  const std::vector<MeasuredBatch>& batches = load.measured.batches;
  const std::vector<MeasuredStep> decodes = launch::predicted_decode_steps(batches, records.steps());
  const std::vector<MeasuredStep> prefills = launch::predicted_prefill_steps(batches, records.steps());
  const launch::MeasuredFigures predicted = records.figures();
  const launch::MeasuredFigures& measured = load.measured.measured;
  std::vector<double> out;
  for (const std::size_t index : load.rows) {
    const ServingRow& row = rows_[index];
    if (row.kind == Kind::kFirstToken) {
      out.push_back(log_ratio(measured.ttft_ms, predicted.ttft_ms));
    } else if (row.kind == Kind::kPerToken) {
      out.push_back(log_ratio(measured.tpot_ms, predicted.tpot_ms));
    } else {
      out.push_back(log_ratio(row.kind == Kind::kDecode ? decodes : prefills, row.steps));
    }
  }
  return out;
}

std::vector<double> ServingRows::log_ratios(const proto::HardwareProfile& profile,
                                            const std::vector<Coefficient>& coefficients,
                                            const std::vector<double>& logarithms, std::uint32_t threads,
                                            const std::function<void()>& on_served) {
  const proto::HardwareProfile priced = with_factors(profile, coefficients, logarithms);
  std::vector<std::vector<double>> keys(served_.size());
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < served_.size(); ++i) {
    for (std::size_t c = 0; c < coefficients.size(); ++c) {
      const auto& own = served_[i].coefficients;
      if (std::find(own.begin(), own.end(), coefficients[c]) != own.end()) keys[i].push_back(logarithms[c]);
    }
    if (!served_[i].known.contains(keys[i])) wanted.push_back(i);
  }
  std::vector<std::vector<double>> results(wanted.size());
  launch::parallel_loop(
      wanted.size(), threads,
      [&](std::size_t k, const std::atomic<bool>& stop) {
        results[k] = serve(served_[wanted[k]], priced, stop);
      },
      [&on_served](std::size_t) { on_served(); });
  for (std::size_t k = 0; k < wanted.size(); ++k)
    served_[wanted[k]].known[keys[wanted[k]]] = std::move(results[k]);
  std::vector<double> out(rows_.size(), kNone);
  for (std::size_t i = 0; i < served_.size(); ++i) {
    const std::vector<double>& found = served_[i].known.at(keys[i]);
    for (std::size_t k = 0; k < found.size(); ++k) out[served_[i].rows[k]] = found[k];
  }
  return out;
}

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
