#include "launch/lab/calibrate/attention_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "launch/lab/calibrate/row_plans.h"
#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using kernels::AttentionRow;

class Fit {
 public:
  Fit(const proto::HardwareProfile& profile, const std::string& backend, kernels::AttentionKernel kernel)
      : planner_(profile, backend, kernel), mla_(kernels::is_mla(kernel)) {}

  void add(const AttentionSource& source);
  const std::vector<RowPlan>& rows() const { return rows_; }

  // Returns what is left of the loss.
  double search(PlanCoefficients& c);
  // Adds what the rows support beyond the formula with `c`.
  void correct(const PlanCoefficients& c, proto::OperatorEfficiency& entry) {
    CorrectionOptions options;
    std::vector<SurfaceRow> rows = mla_ ? mla_rows(c) : full_rows(c, options);
    add_corrections(std::move(rows), kPlanFeatures, correction_stages(planner_.kernel()), options, entry);
  }
  PlanCosts costs(const PlanCoefficients& c, const Corrections& corrections = {}) const {
    return planner_.costs(c, corrections);
  }
  double price(const RowPlan& p, const PlanCosts& costs) {
    return p.row->rest_seconds + planner_.price(p, costs);
  }

 private:
  std::vector<SurfaceRow> full_rows(const PlanCoefficients& c, CorrectionOptions& options);
  std::vector<SurfaceRow> mla_rows(const PlanCoefficients& c);

  RowPlanner planner_;
  bool mla_;
  std::vector<RowPlan> rows_;
};

void Fit::add(const AttentionSource& source) {
  constexpr std::size_t kMostSearched = 1500;
  const std::size_t every = mla_ ? 1 : std::max<std::size_t>(1, source.rows.size() / kMostSearched);
  const std::size_t first = rows_.size();
  double used = 0;
  for (const AttentionRow& row : source.rows) {
    RowPlan& p = rows_.emplace_back(planner_.plan(row));
    p.left_out = row.held || (!source.parted && kernels::is_left_out(row, planner_.kernel()));
    p.searched = !p.left_out && (rows_.size() - 1 - first) % every == 0;
    used += p.left_out && !mla_ ? 0 : 1;
  }
  for (std::size_t i = first; i < rows_.size(); ++i) rows_[i].weight = rows_[i].left_out ? 0 : 1 / used;
}

double Fit::search(PlanCoefficients& c) {
  // Beyond it one row is as bad as another.
  const double far_off = mla_ ? 0.7 : 1.0;
  const CoordinateSearch search = searched(rows_, planner_, c);
  const auto loss = [&] {
    const PlanCosts now = costs(c);
    double sum = 0;
    for (const RowPlan& p : rows_)
      if (p.searched) sum += p.weight * std::min(far_off, std::abs(std::log(price(p, now) / p.row->seconds)));
    return sum;
  };
  return search.minimise(loss, mla_ ? 3 : 2);
}

// Sources count alike in the search for coefficients. A surface follows single rows: one of a small file that
// counts as a hundred of a large table bends the grid for all of the table's around it.
constexpr double kMostWeight = 16;

std::vector<SurfaceRow> Fit::full_rows(const PlanCoefficients& c, CorrectionOptions& options) {
  // What a price would be with and without a factor of 2 tells what of it a factor multiplies.
  proto::OperatorEfficiency entry;
  entry.add_corrections()->add_factors(2000);
  const PlanCosts plain = costs(c), doubled = costs(c, Corrections(&entry, kPlanFeatures));
  std::vector<SurfaceRow> surface_rows;
  for (const RowPlan& p : rows_) {
    if (p.left_out) continue;
    const double price_now = price(p, plain);
    // Backends that price every request by itself have no features of the whole batch.
    if (price(p, doubled) - price_now < 0.999 * price_now) return {};
    surface_rows.push_back({planner_.features(p, plain), p.row->seconds / price_now,
                            std::min(p.weight * static_cast<double>(rows_.size()), kMostWeight)});
  }
  constexpr std::size_t kFew = 1500;  // rows of which all can be left out in turn, and that need more care
  const bool few = surface_rows.size() < kFew;
  options.smoothness = few ? std::vector<double>{0.2, 1, 4} : std::vector<double>{0.2};
  options.folds = few ? 4 : 2;
  options.better = 0.97;
  options.most_rows = 5000;
  return surface_rows;
}

std::vector<SurfaceRow> Fit::mla_rows(const PlanCoefficients& c) {
  std::vector<SurfaceRow> surface_rows;
  const PlanCosts now = costs(c);
  for (const RowPlan& p : rows_) {
    if (p.left_out) continue;
    const double own = planner_.price(p, now);
    const double ratio = (p.row->seconds - p.row->rest_seconds) / own;
    if (ratio < 0.2 || ratio > 5) continue;  // the rest was off
    surface_rows.push_back({planner_.features(p, now), ratio, p.weight * own / (own + p.row->rest_seconds)});
  }
  return surface_rows;
}

}  // namespace

AttentionFit fit_attention(const proto::HardwareProfile& profile, const std::string& backend,
                           kernels::AttentionKernel kernel, std::span<const AttentionSource> sources,
                           const std::vector<PlanCoefficients>& starts) {
  Fit fit(profile, backend, kernel);
  for (const AttentionSource& source : sources) fit.add(source);
  if (fit.rows().empty()) throw std::invalid_argument(backend + " has no rows to be fitted to");
  PlanCoefficients best;
  double least = std::numeric_limits<double>::infinity();
  for (PlanCoefficients candidate : starts) {
    const double left = fit.search(candidate);
    if (left >= least) continue;
    least = left;
    best = candidate;
  }
  AttentionFit out;
  out.entry.set_operator_class("attention." + backend + "." + kernels::class_suffix(kernel));
  write_coefficients(best, out.entry);
  fit.correct(best, out.entry);
  const PlanCosts formula = fit.costs(best),
                  corrected = fit.costs(best, Corrections(&out.entry, kPlanFeatures));
  using attention::PlanCost, attention::Residency;
  const std::string& name = out.entry.operator_class();
  const PlanCosts before{PlanCost(profile, name, Residency::kHot), PlanCost(profile, name, Residency::kCold)};
  std::vector<double> all, left_out, alone, then;
  for (const RowPlan& p : fit.rows()) {
    out.priced.push_back({p.row, fit.price(p, corrected), fit.price(p, formula), p.left_out});
    all.push_back(p.row->seconds / out.priced.back().seconds);
    if (!p.left_out) continue;
    left_out.push_back(all.back());
    alone.push_back(p.row->seconds / out.priced.back().formula_seconds);
    then.push_back(p.row->seconds / fit.price(p, before));
  }
  out.rows = fit.rows().size();
  out.left_out = relative_errors(left_out);
  out.formula = relative_errors(alone);
  out.before = relative_errors(then);
  out.set_errors(left_out.empty() ? relative_errors(all) : out.left_out);
  return out;
}

}  // namespace tpsim::calibrate
