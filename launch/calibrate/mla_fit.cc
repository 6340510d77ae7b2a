#include "launch/calibrate/mla_fit.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "attention/planned_backend.h"
#include "attention/registry.h"
#include "launch/calibrate/coordinate_search.h"
#include "launch/calibrate/corrections.h"
#include "launch/calibrate/row_plans.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using attention::PlanCost;
using attention::Residency;
using calibration::AttentionRow;
using calibration::MlaKernel;

struct Planned : RowPlan {
  double weight = 1;
  bool left_out = false;
  bool parted = false;
};

class Fit {
 public:
  Fit(const proto::HardwareProfile& profile, const std::string& backend, MlaKernel kernel)
      : planner_(profile, backend, kMlaPageSize, kernel == MlaKernel::kDecode), kernel_(kernel) {}

  void add(const MlaSource& source) {
    for (const AttentionRow& row : source.rows)
      rows_.push_back({planner_.plan(row), 1.0 / static_cast<double>(source.rows.size()),
                       source.parted ? row.held : calibration::held_out(row), source.parted});
  }
  const std::vector<Planned>& rows() const { return rows_; }

  void minimise(PlanCoefficients& c);
  std::vector<proto::CorrectionSurface> correct(const PlanCoefficients& c);
  PlanCosts costs(const PlanCoefficients& c, const Corrections& corrections = {}) const {
    return planner_.costs(c, corrections);
  }
  double price(const Planned& p, const PlanCosts& costs) {
    return p.row->rest_seconds + planner_.price(p, costs);
  }

 private:
  std::vector<std::vector<GridWish>> stages() const;

  RowPlanner planner_;
  MlaKernel kernel_;
  std::vector<Planned> rows_;
};

// Only what some row can tell varies.
void Fit::minimise(PlanCoefficients& c) {
  SearchSpace space;
  const auto vary = [&space](double& value, double least, double most) { space.vary(value, least, most); };
  vary(c.compute, 0.02, 1);
  vary(c.memory, 0.05, 1);
  vary(c.fixed_seconds, 5e-7, 3e-4);
  vary(c.block_seconds, 1e-8, 1e-4);
  vary(c.overlap, 1e-3, 1);
  vary(c.block_compute, 0.3, 8);
  vary(c.merge_seconds, 1e-7, 1e-4);
  if (planner_.decodes()) {
    vary(c.block_memory, 0.2, 12);
    c.merge_part_seconds = 1e-8;
    vary(c.merge_part_seconds, 1e-9, 1e-6);
    if (any(rows_, [](const Planned& p) { return !p.decode.tensor_cores; })) vary(c.vector_compute, 0.002, 1);
  } else {
    vary(c.tail, 1e-3, 1);
  }
  if (any(rows_, [](const Planned& p) { return p.row->residency == Residency::kHot; }))
    vary(c.l2_memory, 1, 10);
  if (any(rows_, [](const Planned& p) { return p.decode.widens_kv || p.extend.widens_kv; }))
    vary(c.gather, 0.05, 2);
  if (any(rows_, [](const Planned& p) { return p.row->layer.fp8_kv(); })) {
    c.fp8_seconds = 5e-7;
    vary(c.fp8_seconds, 1e-8, 5e-5);
  }
  if (any(rows_, [](const Planned& p) { return p.row->layer.q_bytes == 1; })) vary(c.fp8_compute, 0.1, 2);
  if (any(rows_, [](const Planned& p) {
        return p.row->layer.q_bytes == 2 && p.row->layer.kv_bytes() < 2 && !p.decode.widens_kv &&
               !p.extend.widens_kv;
      })) {
    vary(c.fp8_kv, 0.2, 2);
    vary(c.fp8_convert, 0.05, 3);
  }
  const auto loss = [&] {
    constexpr double kFarOff = 0.7;  // beyond it one row is as bad as another
    const PlanCosts now = costs(c);
    double sum = 0;
    for (const Planned& p : rows_)
      if (!p.left_out)
        sum += p.weight * std::min(kFarOff, std::abs(std::log(price(p, now) / p.row->seconds)));
    return sum;
  };
  space.minimise(loss, 3);
}

// A decode is told by its batch, an extend by its tiles: how long one is, and how many a multiprocessor has,
// so that a few new tokens behind a prefix, which no table has, are not taken for a short prompt. Cold and
// hot caches, ragged batches and prefixes come second, where there are such rows.
std::vector<std::vector<GridWish>> Fit::stages() const {
  std::vector<GridWish> grids;
  for (const auto& [points, heads] :
       {std::pair<std::size_t, std::size_t>{2, 2}, {4, 2}, {4, 5}, {6, 3}, {6, 5}, {8, 3}}) {
    if (planner_.decodes()) {
      grids.push_back({{"requests", points}, {"tokens", points}, {"group", heads}, {"element_bytes", 3}});
    } else {
      const char* per_rank = kernel_ == MlaKernel::kExtend ? "group" : "kv_heads";
      grids.push_back({{"blocks", points}, {"part", points}, {per_rank, heads}, {"element_bytes", 3}});
    }
  }
  if (planner_.decodes())
    return {grids,
            {{{"l2_fill", 2}, {"spread", 3}, {"requests", 3}},
             {{"l2_fill", 2}, {"requests", 4}, {"tokens", 4}, {"group", 2}},
             {{"l2_fill", 2}, {"requests", 5}, {"tokens", 4}, {"group", 3}, {"spread", 2}}},
            {{{"l2_fill", 2}, {"part", 4}, {"blocks", 4}}, {{"part", 5}, {"group", 3}}}};
  return {grids,
          {{{"prefix", 4}, {"tokens", 4}}, {{"prefix", 3}, {"rows", 3}, {"requests", 3}, {"spread", 2}}},
          {{{"requests", 3}, {"spread", 3}, {"l2_fill", 2}}}};
}

// What the rows of the fit say beyond the formula.
std::vector<proto::CorrectionSurface> Fit::correct(const PlanCoefficients& c) {
  std::vector<SurfaceRow> rows;
  const PlanCosts now = costs(c);
  for (const Planned& p : rows_) {
    if (p.left_out) continue;
    const double own = planner_.price(p, now);
    const double ratio = (p.row->seconds - p.row->rest_seconds) / own;
    if (ratio < 0.2 || ratio > 5) continue;  // the rest was off
    rows.push_back({planner_.features(p, now), ratio, p.weight * own / (own + p.row->rest_seconds)});
  }
  return choose_corrections(std::move(rows), kPlanFeatures, stages());
}

}  // namespace

MlaFit fit_mla(const proto::HardwareProfile& profile, const std::string& backend, MlaKernel kernel,
               std::span<const MlaSource> sources) {
  Fit fit(profile, backend, kernel);
  for (const MlaSource& source : sources) fit.add(source);
  if (fit.rows().empty()) throw std::invalid_argument(backend + " has no rows to be fitted to");
  PlanCoefficients c;
  fit.minimise(c);
  MlaFit out;
  out.entry.set_operator_class("attention." + backend + "." + calibration::class_suffix(kernel));
  write_coefficients(c, out.entry);
  for (proto::CorrectionSurface& surface : fit.correct(c)) *out.entry.add_corrections() = std::move(surface);
  const PlanCosts formula = fit.costs(c), corrected = fit.costs(c, Corrections(&out.entry, kPlanFeatures));
  std::vector<double> left_out, alone, fitted;
  for (const Planned& p : fit.rows()) {
    const double seconds = fit.price(p, corrected);
    out.priced.push_back({p.row, seconds, p.left_out, p.parted});
    (p.left_out ? left_out : fitted).push_back(p.row->seconds / seconds);
    if (p.left_out) alone.push_back(p.row->seconds / fit.price(p, formula));
  }
  out.left_out = relative_errors(left_out);
  out.formula = relative_errors(alone);
  out.fitted = relative_errors(fitted);
  out.entry.set_median_error(out.left_out.median);
  out.entry.set_p90_error(out.left_out.p90);
  return out;
}

RelativeErrors errors_left_out(const proto::HardwareProfile& profile, const std::string& backend,
                               MlaKernel kernel, const MlaFit& fit) {
  const auto made = attention::create_attention_backend(backend, profile, kMlaPageSize);
  auto& planned = dynamic_cast<attention::PlannedBackend&>(*made);
  const std::string& name = fit.entry.operator_class();
  const PlanCost hot(profile, name, Residency::kHot), cold(profile, name, Residency::kCold);
  std::vector<double> ratios;
  for (const MlaFit::Priced& p : fit.priced) {
    if (!p.left_out) continue;
    const PlanCost& cost = p.row->residency == Residency::kHot ? hot : cold;
    const double own = calibration::price(planned, cost, *p.row, kernel == MlaKernel::kDecode);
    ratios.push_back(p.row->seconds / (p.row->rest_seconds + own));
  }
  return relative_errors(ratios);
}

}  // namespace tpsim::calibrate
