#include "launch/calibrate/attention_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "launch/calibrate/coordinate_search.h"
#include "launch/calibrate/corrections.h"
#include "launch/calibrate/row_plans.h"
#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using attention::LayerShape;
using attention::Residency;
using calibration::AttentionRow;

struct Planned : RowPlan {
  double weight = 1;
  bool aside = false;
  bool searched = true;  // the search for coefficients looks at a part of a large table only
};

class Fit {
 public:
  Fit(const proto::HardwareProfile& profile, const std::string& backend, bool decode)
      : planner_(profile, backend, 1, decode) {}

  void add(const AttentionSource& source) {
    constexpr std::size_t kMostSearched = 1500;
    const std::size_t every = std::max<std::size_t>(1, source.rows.size() / kMostSearched);
    const std::size_t first = rows_.size();
    for (const AttentionRow& row : source.rows) {
      Planned p{planner_.plan(row)};
      p.aside = row.held || (source.keep_aside && calibration::kept_aside(row));
      p.searched = !p.aside && (rows_.size() - first) % every == 0;
      rows_.push_back(std::move(p));
    }
    double used = 0;
    for (std::size_t i = first; i < rows_.size(); ++i) used += rows_[i].aside ? 0 : 1;
    for (std::size_t i = first; i < rows_.size(); ++i) rows_[i].weight = rows_[i].aside ? 0 : 1 / used;
  }

  std::span<const Planned> rows() const { return rows_; }

  // Returns what is left of the loss.
  double search(PlanCoefficients& c);
  std::vector<proto::CorrectionSurface> corrections(const PlanCoefficients& c);
  std::vector<double> prices(const PlanCoefficients& c, const Corrections& corrections) {
    const PlanCosts costs = planner_.costs(c, corrections);
    std::vector<double> seconds;
    for (const Planned& p : rows_) seconds.push_back(planner_.price(p, costs));
    return seconds;
  }

 private:
  bool any_layer(bool (*which)(const LayerShape&)) const {
    return any(rows_, [which](const Planned& p) { return which(p.row->layer); });
  }

  RowPlanner planner_;
  std::vector<Planned> rows_;
};

// Only what some row can tell varies.
double Fit::search(PlanCoefficients& c) {
  SearchSpace space;
  const auto vary = [&space](double& value, double least, double most) { space.vary(value, least, most); };
  const bool hot = any(rows_, [](const Planned& p) { return p.row->residency == Residency::kHot; });
  const bool cold = any(rows_, [](const Planned& p) { return p.row->residency == Residency::kCold; });
  vary(c.compute, 0.02, 1);
  vary(c.memory, 0.05, 1);
  vary(c.fixed_seconds, 5e-7, 3e-4);
  vary(c.block_seconds, 1e-8, 1e-4);
  vary(c.overlap, 1e-3, 1);
  if (hot) vary(c.l2_memory, 1, 10);
  if (hot && cold) vary(c.hot_seconds, 1e-8, 1e-4);
  const auto head = [&](double& value, std::uint32_t least, std::uint32_t most) {
    if (any(rows_,
            [&](const Planned& p) { return p.row->layer.head_dim > least && p.row->layer.head_dim <= most; }))
      vary(value, 0.1, 4);
  };
  head(c.head_dim_64, 0, 64);
  head(c.head_dim_192, 128, 192);
  head(c.head_dim_256, 192, 256);
  head(c.head_dim_512, 256, 1024);
  if (any_layer([](const LayerShape& l) { return l.q_bytes == 1; })) vary(c.fp8_compute, 0.1, 2);
  if (any_layer([](const LayerShape& l) { return l.q_bytes == 2 && l.fp8_kv(); })) {
    vary(c.fp8_kv, 0.2, 2);
    vary(c.fp8_convert, 0.05, 2);
  }
  if (any_layer([](const LayerShape& l) { return l.sliding_window != 0; })) {
    vary(c.window, 0.1, 4);
    vary(c.window_seconds, 1e-8, 1e-4);
    if (any_layer([](const LayerShape& l) { return l.sliding_window != 0 && l.head_dim <= 64; }) &&
        any_layer([](const LayerShape& l) { return l.sliding_window != 0 && l.head_dim > 64; }))
      vary(c.window_64, 0.1, 4);
    if (any(rows_, [](const Planned& p) { return p.extend.walks_window; })) vary(c.walk, 0.01, 1);
  }
  if (any_layer([](const LayerShape& l) { return l.head_dim > 128 && l.head_dim <= 192; }))
    vary(c.head_dim_192_seconds, 1e-8, 1e-4);
  if (planner_.backend() == "torch_native") vary(c.gather, 0.05, 4);
  vary(c.block_compute, 0.3, 8);
  if (any(rows_, [](const Planned& p) {
        return p.decode.merge || p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0;
      }))
    vary(c.merge_seconds, 1e-7, 1e-4);
  if (any(rows_, [](const Planned& p) { return p.decode.merge; })) vary(c.merge_part_seconds, 1e-9, 1e-5);
  if (any_layer([](const LayerShape& l) { return l.fp8_kv(); })) {
    if (any_layer([](const LayerShape& l) { return !l.fp8_kv(); })) vary(c.fp8_seconds, 1e-8, 1e-4);
    vary(c.cast, 0.01, 10);
  }
  if (hot) vary(c.write, 0.01, 10);
  if (planner_.decodes()) {
    vary(c.block_memory, 0.05, 8);
    vary(c.block_width_seconds, 1e-9, 1e-5);
    if (any(rows_, [](const Planned& p) { return p.decode.resident > 1; })) vary(c.resident, 1, 8);
    if (any(rows_, [](const Planned& p) { return p.decode.tensor_cores; }) &&
        any(rows_, [](const Planned& p) { return !p.decode.tensor_cores; }))
      vary(c.vector_compute, 0.005, 1);
  } else {
    vary(c.tail, 1e-3, 1);
    vary(c.wave_tail, 0.01, 1);
    vary(c.in_order, 0.01, 1);
    if (any(rows_, [](const Planned& p) { return p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0; }))
      vary(c.merge_row_seconds, 1e-9, 1e-5);
    if (any(rows_, [](const Planned& p) { return p.extend.merge_blocks > 0; }))
      vary(c.merge_block_seconds, 1e-11, 1e-8);
    if (any(rows_, [](const Planned& p) {
          return p.extend.prefix_rows == 0 && !p.row->prefixes.empty() && p.row->prefixes[0] != 0;
        }))
      vary(c.cached, 0.8, 3);
    if (any_layer([](const LayerShape& l) { return l.head_dim <= 64; }) &&
        any_layer([](const LayerShape& l) { return l.head_dim > 64; })) {
      vary(c.block_compute_64, 0.2, 2);
      if (any(rows_, [](const Planned& p) {
            return p.row->layer.head_dim <= 64 && p.extend.prefix_rows == 0 && !p.row->prefixes.empty() &&
                   p.row->prefixes[0] != 0;
          }))
        vary(c.cached_64, 0.3, 2);
    }
    // Both its steps over new tokens and others, or other heads, must be there to tell.
    const auto spills = [](const Planned& p) {
      const LayerShape& layer = p.row->layer;
      return p.extend.grid_tiles != 0 && layer.head_dim > 192 && layer.head_dim <= 256 &&
             layer.kv_bytes() >= 2 && layer.sliding_window == 0;
    };
    if (any(rows_, spills)) vary(c.fresh_256, 1, 8);
    if (any(rows_, [](const Planned& p) { return p.extend.prefix_rows != 0 || p.extend.prefix_kernel; }))
      vary(c.prefix, 0.1, 2);
  }
  const auto loss = [&] {
    const PlanCosts costs = planner_.costs(c);
    double sum = 0;
    for (const Planned& p : rows_) {
      if (!p.searched) continue;
      sum += p.weight * std::min(1.0, std::abs(std::log(planner_.price(p, costs) / p.row->seconds)));
    }
    return sum;
  };
  return space.minimise(loss, 2);
}

// Grids that were worth their factors on the tables of some backend and GPU. Blocks below one a
// multiprocessor, at it and beyond are other regimes, as are rows up to 64, one warpgroup's, and a working
// set about the L2's size.
std::vector<GridWish> attention_grids() {
  const AxisWish head_dim{"head_dim", 6}, window{"window", 4}, bytes{"element_bytes", 3},
      group{"group", 0, {1, 2, 4, 8, 16, 64}}, coarse_blocks{"blocks", 0, {0.1, 0.9, 2, 4, 8, 16, 32}},
      blocks{"blocks", 0, {0.05, 0.3, 0.9, 1.1, 2, 4, 8, 16, 32, 128}},
      rows{"rows", 0, {1, 16, 64, 66, 256, 1024, 4096, 16384, 65536}},
      tokens{"tokens", 0, {1, 16, 64, 256, 1024, 2048, 4096, 8192, 16384}},
      few_tokens{"tokens", 0, {1, 32, 256, 2048, 16384}},
      l2_fill{"l2_fill", 0, {0.02, 0.1, 0.3, 0.7, 1, 1.5, 3}}, requests{"requests", 5},
      cold{"l2_fill", 0, {3, kNothingHeld}}, rows_few{"rows", 0, {1, 16, 64, 512, 8192}};
  return {
      {tokens, coarse_blocks, head_dim, bytes},
      {tokens, coarse_blocks, window, bytes},
      {tokens, coarse_blocks, window, head_dim},
      {tokens, blocks, bytes},
      {blocks, tokens, group},
      {blocks, rows, head_dim, bytes},
      {l2_fill, few_tokens, group, head_dim},
      {group, bytes, head_dim, few_tokens},
      {group, bytes, head_dim, requests},
      {head_dim, window, bytes, blocks},
      {head_dim, window, bytes, few_tokens},
      {head_dim, window, bytes, l2_fill},
      {group, {"kv_heads", 5}, requests},
      {{"requests", 12}, tokens, {"kv_heads", 5}},
      {{"prefix", 0, {1, 64, 512, 4096, 32768}}, tokens, {"spread", 0, {1, 1.5, 3, 8}}},
      {blocks, {"spread", 0, {1, 1.5, 3, 8}}, {"part", 0, {128, 512, 2048, 8192}}},
      // Small ones, for few rows.
      {{"kv_heads", 4}, group},
      {{"kv_heads", 4}, few_tokens},
      {{"kv_heads", 4}, coarse_blocks},
      {rows_few, {"prefix", 0, {1, 512, 8192}}},
      {rows_few, bytes},
      {head_dim, bytes, {"blocks", 0, {0.9, 4}}},
      {coarse_blocks, bytes},
      // Caches that hold nothing, as served layers meet them, apart from those of the benchmarks' loops.
      {cold, rows_few, {"prefix", 0, {1, 512, 8192}}},
      {cold, coarse_blocks, {"spread", 0, {1, 1.5, 3, 8}}},
      {cold, blocks, head_dim},
      {cold, group, {"kv_heads", 4}},
      {cold, few_tokens, coarse_blocks, bytes},
      {cold, {"part", 0, {128, 512, 2048, 8192}}, coarse_blocks},
  };
}

// Sources count alike in the search for coefficients. A surface follows single rows: one of a small file that
// counts as a hundred of a large table bends the grid for all of the table's around it.
constexpr double kMostWeight = 16;

std::vector<proto::CorrectionSurface> Fit::corrections(const PlanCoefficients& c) {
  // What a price would be with and without a factor of 2 tells what of it a factor multiplies.
  proto::CorrectionSurface two;
  two.add_factors(2000);
  proto::OperatorEfficiency entry;
  *entry.add_corrections() = two;
  const PlanCosts plain = planner_.costs(c);
  const PlanCosts doubled = planner_.costs(c, Corrections(&entry, kPlanFeatures));
  std::vector<SurfaceRow> surface_rows;
  for (const Planned& p : rows_) {
    if (p.aside) continue;
    const double price_now = planner_.price(p, plain);
    const double part = planner_.price(p, doubled) - price_now;
    // Backends that price every request by itself have no features of the whole batch.
    if (part < 0.999 * price_now) return {};
    surface_rows.push_back({planner_.features(p, plain), p.row->seconds / price_now,
                            std::min(p.weight * static_cast<double>(rows_.size()), kMostWeight)});
  }
  CorrectionOptions options;
  options.smoothness = {0.2};
  options.folds = 2;
  options.better = 0.97;
  options.most_rows = 5000;
  constexpr std::size_t kFew = 1500;  // rows of which all can be left out in turn, and that need more care
  if (surface_rows.size() < kFew) {
    options.smoothness = {0.2, 1, 4};
    options.folds = 4;
  }
  constexpr std::size_t kMostSurfaces = 6;
  const std::vector<std::vector<GridWish>> stages(kMostSurfaces, attention_grids());
  return choose_corrections(std::move(surface_rows), kPlanFeatures, stages, options);
}

}  // namespace

AttentionFit fit_attention(const proto::HardwareProfile& profile, const std::string& backend, bool decode,
                           std::span<const AttentionSource> sources, std::span<const PlanCoefficients> starts,
                           bool search) {
  Fit fit(profile, backend, decode);
  for (const AttentionSource& source : sources) fit.add(source);
  if (fit.rows().empty()) throw std::invalid_argument(backend + " has no rows to be fitted to");
  PlanCoefficients best = starts.front();
  if (search) {
    double least = std::numeric_limits<double>::infinity();
    for (PlanCoefficients candidate : starts) {
      const double left = fit.search(candidate);
      if (left >= least) continue;
      least = left;
      best = candidate;
    }
  }
  AttentionFit out;
  out.rows = fit.rows().size();
  out.efficiency.set_operator_class("attention." + backend + (decode ? ".decode" : ".extend"));
  write_coefficients(best, out.efficiency);
  for (proto::CorrectionSurface& surface : fit.corrections(best))
    *out.efficiency.add_corrections() = std::move(surface);
  const std::vector<double> seconds = fit.prices(best, Corrections(&out.efficiency, kPlanFeatures));
  const std::vector<double> formula = fit.prices(best, {});
  std::vector<double> ratios, all;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Planned& p = fit.rows()[i];
    out.priced.push_back({p.row, seconds[i], formula[i], p.aside});
    all.push_back(p.row->seconds / seconds[i]);
    if (p.aside) ratios.push_back(all.back());
  }
  const RelativeErrors errors = relative_errors(ratios.empty() ? all : ratios);
  out.efficiency.set_median_error(errors.median);
  out.efficiency.set_p90_error(errors.p90);
  return out;
}

}  // namespace tpsim::calibrate
