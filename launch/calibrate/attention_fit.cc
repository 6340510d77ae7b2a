#include "launch/calibrate/attention_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "attention/registry.h"
#include "launch/calibrate/coordinate_search.h"
#include "launch/calibrate/corrections.h"
#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using attention::LayerShape;
using attention::PlanCost;
using attention::Residency;
using calibration::AttentionRow;

struct Planned {
  const AttentionRow* row;
  double weight = 1;
  bool aside = false;
  bool searched = true;  // the search for coefficients looks at a part of a large table only
  attention::DecodePlan decode;
  attention::ExtendPlan extend;
};

class Fit {
 public:
  Fit(const proto::HardwareProfile& profile, const std::string& name, bool decode)
      : profile_(profile),
        backend_(attention::create_attention_backend(name, profile, 1)),
        planned_(dynamic_cast<attention::PlannedBackend*>(backend_.get())),
        decode_(decode) {
    if (planned_ == nullptr) throw std::invalid_argument(name + " plans no kernels of its own");
  }

  void add(const AttentionSource& source) {
    constexpr std::size_t kMostSearched = 1500;
    const std::size_t every = std::max<std::size_t>(1, source.rows.size() / kMostSearched);
    const std::size_t first = rows_.size();
    for (const AttentionRow& row : source.rows) {
      calibration::with_metadata(row, decode_, [&](const attention::ForwardMetadata& metadata) {
        planned_->init_forward_metadata(metadata);
        Planned p{&row, 1, false, true, {}, {}};
        if (decode_) {
          p.decode = planned_->decode_plan(row.layer);
        } else {
          p.extend = planned_->extend_plan(row.layer);
        }
        p.aside = row.held || (source.keep_aside && calibration::kept_aside(row));
        p.searched = !p.aside && (rows_.size() - first) % every == 0;
        rows_.push_back(std::move(p));
      });
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
    const Models models(*this, c, corrections);
    std::vector<double> seconds;
    for (const Planned& p : rows_) seconds.push_back(price(p, models));
    return seconds;
  }

 private:
  struct Models {
    Models(const Fit& fit, const PlanCoefficients& c, const Corrections& corrections)
        : hot(fit.profile_, c, Residency::kHot, corrections),
          cold(fit.profile_, c, Residency::kCold, corrections) {}
    const PlanCost& of(const Planned& p) const { return p.row->residency == Residency::kHot ? hot : cold; }
    PlanCost hot, cold;
  };

  template <typename Which>
  bool any(Which which) const {
    return std::any_of(rows_.begin(), rows_.end(), which);
  }
  bool any_layer(bool (*which)(const LayerShape&)) const {
    return any([which](const Planned& p) { return which(p.row->layer); });
  }

  double price(const Planned& p, const Models& models) {
    return decode_ ? planned_->decode_cost(models.of(p), p.decode, p.row->layer).seconds
                   : planned_->extend_cost(models.of(p), p.extend, p.row->layer).seconds;
  }

  const proto::HardwareProfile& profile_;
  std::unique_ptr<attention::AttentionBackend> backend_;
  attention::PlannedBackend* planned_;
  bool decode_;
  std::vector<Planned> rows_;
};

// Only what some row can tell varies.
double Fit::search(PlanCoefficients& c) {
  SearchSpace space;
  const auto vary = [&space](double& value, double least, double most) { space.vary(value, least, most); };
  const bool hot = any([](const Planned& p) { return p.row->residency == Residency::kHot; });
  const bool cold = any([](const Planned& p) { return p.row->residency == Residency::kCold; });
  vary(c.compute, 0.02, 1);
  vary(c.memory, 0.05, 1);
  vary(c.fixed_seconds, 5e-7, 3e-4);
  vary(c.block_seconds, 1e-8, 1e-4);
  vary(c.overlap, 1e-3, 1);
  if (hot) vary(c.l2_memory, 1, 10);
  if (hot && cold) vary(c.hot_seconds, 1e-8, 1e-4);
  const auto head = [&](double& value, std::uint32_t least, std::uint32_t most) {
    if (any([&](const Planned& p) { return p.row->layer.head_dim > least && p.row->layer.head_dim <= most; }))
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
    if (any([](const Planned& p) { return p.extend.walks_window; })) vary(c.walk, 0.01, 1);
  }
  if (any_layer([](const LayerShape& l) { return l.head_dim > 128 && l.head_dim <= 192; }))
    vary(c.head_dim_192_seconds, 1e-8, 1e-4);
  if (planned_->name() == "torch_native") vary(c.gather, 0.05, 2);
  vary(c.block_compute, 0.3, 8);
  if (any([](const Planned& p) {
        return p.decode.merge || p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0;
      }))
    vary(c.merge_seconds, 1e-7, 1e-4);
  if (any([](const Planned& p) { return p.decode.merge; })) vary(c.merge_part_seconds, 1e-9, 1e-5);
  if (any_layer([](const LayerShape& l) { return l.fp8_kv(); })) {
    if (any_layer([](const LayerShape& l) { return !l.fp8_kv(); })) vary(c.fp8_seconds, 1e-8, 1e-4);
    vary(c.cast, 0.01, 10);
  }
  if (hot) vary(c.write, 0.01, 10);
  if (decode_) {
    vary(c.block_memory, 0.2, 8);
    vary(c.block_width_seconds, 1e-9, 1e-5);
    if (any([](const Planned& p) { return p.decode.resident > 1; })) vary(c.resident, 1, 8);
    if (any([](const Planned& p) { return p.decode.tensor_cores; }) &&
        any([](const Planned& p) { return !p.decode.tensor_cores; }))
      vary(c.vector_compute, 0.005, 1);
  } else {
    vary(c.tail, 1e-3, 1);
    vary(c.wave_tail, 0.01, 1);
    vary(c.in_order, 0.01, 1);
    if (any([](const Planned& p) { return p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0; }))
      vary(c.merge_row_seconds, 1e-9, 1e-5);
    if (any([](const Planned& p) {
          return p.extend.prefix_rows == 0 && !p.row->prefixes.empty() && p.row->prefixes[0] != 0;
        }))
      vary(c.cached, 0.8, 3);
    if (any([](const Planned& p) { return p.extend.prefix_rows != 0 || p.extend.prefix_kernel; }))
      vary(c.prefix, 0.1, 2);
  }
  const auto loss = [&] {
    const Models models(*this, c, {});
    double sum = 0;
    for (const Planned& p : rows_) {
      if (!p.searched) continue;
      sum += p.weight * std::min(1.0, std::abs(std::log(price(p, models) / p.row->seconds)));
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
      l2_fill{"l2_fill", 0, {0.02, 0.1, 0.3, 0.7, 1, 1.5, 3}}, requests{"requests", 5};
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
      {{"rows", 0, {1, 16, 64, 512, 8192}}, {"prefix", 0, {1, 512, 8192}}},
      {{"rows", 0, {1, 16, 64, 512, 8192}}, bytes},
      {head_dim, bytes, {"blocks", 0, {0.9, 4}}},
      {coarse_blocks, bytes},
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
  const Models plain(*this, c, {});
  const Models doubled(*this, c, Corrections(&entry, kPlanFeatures));
  std::vector<SurfaceRow> surface_rows;
  for (const Planned& p : rows_) {
    if (p.aside) continue;
    const double price_now = price(p, plain);
    const double part = price(p, doubled) - price_now;
    // Backends that price every request by itself have no features of the whole batch.
    if (part < 0.999 * price_now) return {};
    const auto features =
        decode_ ? plain.of(p).features(p.decode, p.row->layer) : plain.of(p).features(p.extend, p.row->layer);
    const auto values = features.values();
    surface_rows.push_back({{values.begin(), values.end()},
                            p.row->seconds / price_now,
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
