#include "launch/lab/calibrate/row_plans.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "attention/selection/registry.h"
#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using attention::LayerShape;
using attention::PlanCost;
using attention::Residency;

// The rows that a fit looks at: a coefficient that none of them can tell does not vary.
class RowSet {
 public:
  explicit RowSet(std::span<const RowPlan> rows) : rows_(rows) {}
  bool any(bool (*which)(const RowPlan&)) const { return std::any_of(rows_.begin(), rows_.end(), which); }
  bool any_layer(bool (*which)(const LayerShape&)) const {
    return std::any_of(rows_.begin(), rows_.end(), [which](const RowPlan& p) { return which(p.row->layer); });
  }
  bool any_head(std::uint32_t above, std::uint32_t most) const {
    return std::any_of(rows_.begin(), rows_.end(), [=](const RowPlan& p) {
      return p.row->layer.head_dim > above && p.row->layer.head_dim <= most;
    });
  }

 private:
  std::span<const RowPlan> rows_;
};

bool is_cached(const RowPlan& p) {
  return p.extend.prefix_rows == 0 && !p.row->prefixes.empty() && p.row->prefixes[0] != 0;
}

template <typename Vary>
void vary_full(const RowSet& rows, bool decodes, bool gathers, PlanCoefficients& c, Vary vary) {
  const bool hot = rows.any([](const RowPlan& p) { return p.row->residency == Residency::kHot; });
  const bool cold = rows.any([](const RowPlan& p) { return p.row->residency == Residency::kCold; });
  vary(c.compute, 0.02, 1);
  vary(c.memory, 0.05, 1);
  vary(c.fixed_seconds, 5e-7, 3e-4);
  vary(c.block_seconds, 1e-8, 1e-4);
  vary(c.overlap, 1e-3, 1);
  if (hot) vary(c.l2_memory, 1, 10);
  if (hot && cold) vary(c.hot_seconds, 1e-8, 1e-4);
  const auto head = [&](double& value, std::uint32_t above, std::uint32_t most) {
    if (rows.any_head(above, most)) vary(value, 0.1, 4);
  };
  head(c.head_dim_64, 0, 64);
  head(c.head_dim_192, 128, 192);
  head(c.head_dim_256, 192, 256);
  head(c.head_dim_512, 256, 1024);
  if (rows.any_layer([](const LayerShape& l) { return l.q_bytes == 1; })) vary(c.fp8_compute, 0.1, 2);
  if (rows.any_layer([](const LayerShape& l) { return l.q_bytes == 2 && l.fp8_kv(); })) {
    vary(c.fp8_kv, 0.2, 2);
    vary(c.fp8_convert, 0.05, 2);
  }
  if (rows.any_layer([](const LayerShape& l) { return l.sliding_window != 0; })) {
    vary(c.window, 0.1, 4);
    vary(c.window_seconds, 1e-8, 1e-4);
    if (rows.any_layer([](const LayerShape& l) { return l.sliding_window != 0 && l.head_dim <= 64; }) &&
        rows.any_layer([](const LayerShape& l) { return l.sliding_window != 0 && l.head_dim > 64; }))
      vary(c.window_64, 0.1, 4);
    if (rows.any([](const RowPlan& p) { return p.extend.walks_window; })) vary(c.walk, 0.01, 1);
  }
  if (rows.any_layer([](const LayerShape& l) { return l.head_dim > 128 && l.head_dim <= 192; }))
    vary(c.head_dim_192_seconds, 1e-8, 1e-4);
  if (gathers) vary(c.gather, 0.05, 4);
  vary(c.block_compute, 0.3, 8);
  if (rows.any([](const RowPlan& p) {
        return p.decode.merge || p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0;
      }))
    vary(c.merge_seconds, 1e-7, 1e-4);
  if (rows.any([](const RowPlan& p) { return p.decode.merge; })) vary(c.merge_part_seconds, 1e-9, 1e-5);
  if (rows.any_layer([](const LayerShape& l) { return l.fp8_kv(); })) {
    if (rows.any_layer([](const LayerShape& l) { return !l.fp8_kv(); })) vary(c.fp8_seconds, 1e-8, 1e-4);
    vary(c.cast, 0.01, 10);
  }
  if (hot) vary(c.write, 0.01, 10);
  if (decodes) {
    vary(c.block_memory, 0.05, 8);
    vary(c.block_width_seconds, 1e-9, 1e-5);
    if (rows.any([](const RowPlan& p) { return p.decode.resident > 1; })) vary(c.resident, 1, 8);
    if (rows.any([](const RowPlan& p) { return p.decode.tensor_cores; }) &&
        rows.any([](const RowPlan& p) { return !p.decode.tensor_cores; }))
      vary(c.vector_compute, 0.005, 1);
  } else {
    vary(c.tail, 1e-3, 1);
    vary(c.wave_tail, 0.01, 1);
    vary(c.in_order, 0.01, 1);
    if (rows.any([](const RowPlan& p) { return p.extend.kv_chunk != 0 || p.extend.prefix_rows != 0; }))
      vary(c.merge_row_seconds, 1e-9, 1e-5);
    if (rows.any([](const RowPlan& p) { return p.extend.merge_blocks > 0; }))
      vary(c.merge_block_seconds, 1e-11, 1e-8);
    if (rows.any(is_cached)) vary(c.cached, 0.8, 3);
    if (rows.any_layer([](const LayerShape& l) { return l.head_dim <= 64; }) &&
        rows.any_layer([](const LayerShape& l) { return l.head_dim > 64; })) {
      vary(c.block_compute_64, 0.2, 2);
      if (rows.any([](const RowPlan& p) { return p.row->layer.head_dim <= 64 && is_cached(p); }))
        vary(c.cached_64, 0.3, 2);
    }
    // Both its steps over new tokens and others, or other heads, must be there to tell.
    const auto spills = [](const RowPlan& p) {
      const LayerShape& layer = p.row->layer;
      return p.extend.grid_tiles != 0 && layer.head_dim > 192 && layer.head_dim <= 256 &&
             layer.kv_bytes() >= 2 && layer.sliding_window == 0;
    };
    if (rows.any(spills)) vary(c.fresh_256, 1, 8);
    if (rows.any([](const RowPlan& p) { return p.extend.prefix_rows != 0 || p.extend.prefix_kernel; }))
      vary(c.prefix, 0.1, 2);
  }
}

template <typename Vary>
void vary_mla(const RowSet& rows, bool decodes, PlanCoefficients& c, Vary vary) {
  vary(c.compute, 0.02, 1);
  vary(c.memory, 0.05, 1);
  vary(c.fixed_seconds, 5e-7, 3e-4);
  vary(c.block_seconds, 1e-8, 1e-4);
  vary(c.overlap, 1e-3, 1);
  vary(c.block_compute, 0.3, 8);
  vary(c.merge_seconds, 1e-7, 1e-4);
  if (decodes) {
    vary(c.block_memory, 0.2, 12);
    c.merge_part_seconds = 1e-8;
    vary(c.merge_part_seconds, 1e-9, 1e-6);
    if (rows.any([](const RowPlan& p) { return !p.decode.tensor_cores; })) vary(c.vector_compute, 0.002, 1);
  } else {
    vary(c.tail, 1e-3, 1);
  }
  if (rows.any([](const RowPlan& p) { return p.row->residency == Residency::kHot; }))
    vary(c.l2_memory, 1, 10);
  if (rows.any([](const RowPlan& p) { return p.decode.widens_kv || p.extend.widens_kv; }))
    vary(c.gather, 0.05, 2);
  if (rows.any([](const RowPlan& p) { return p.row->layer.fp8_kv(); })) {
    c.fp8_seconds = 5e-7;
    vary(c.fp8_seconds, 1e-8, 5e-5);
  }
  if (rows.any([](const RowPlan& p) { return p.row->layer.q_bytes == 1; })) vary(c.fp8_compute, 0.1, 2);
  if (rows.any([](const RowPlan& p) {
        return p.row->layer.q_bytes == 2 && p.row->layer.kv_bytes() < 2 && !p.decode.widens_kv &&
               !p.extend.widens_kv;
      })) {
    vary(c.fp8_kv, 0.2, 2);
    vary(c.fp8_convert, 0.05, 3);
  }
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

// A decode is told by its batch, an extend by its tiles: how long one is, and how many a multiprocessor has,
// so that a few new tokens after a prefix, which no table has, are not taken for a short prompt. Cold and
// hot caches, ragged batches and prefixes come second, where there are such rows.
std::vector<std::vector<GridWish>> mla_stages(kernels::AttentionKernel kernel) {
  const bool decodes = kernels::decodes(kernel);
  std::vector<GridWish> grids;
  for (const auto& [points, heads] :
       {std::pair<std::size_t, std::size_t>{2, 2}, {4, 2}, {4, 5}, {6, 3}, {6, 5}, {8, 3}}) {
    if (decodes) {
      grids.push_back({{"requests", points}, {"tokens", points}, {"group", heads}, {"element_bytes", 3}});
    } else {
      const char* per_rank = kernel == kernels::AttentionKernel::kMlaExtend ? "group" : "kv_heads";
      grids.push_back({{"blocks", points}, {"part", points}, {per_rank, heads}, {"element_bytes", 3}});
    }
  }
  if (decodes)
    return {grids,
            {{{"l2_fill", 2}, {"spread", 3}, {"requests", 3}},
             {{"l2_fill", 2}, {"requests", 4}, {"tokens", 4}, {"group", 2}},
             {{"l2_fill", 2}, {"requests", 5}, {"tokens", 4}, {"group", 3}, {"spread", 2}}},
            {{{"l2_fill", 2}, {"part", 4}, {"blocks", 4}}, {{"part", 5}, {"group", 3}}}};
  return {grids,
          {{{"prefix", 4}, {"tokens", 4}}, {{"prefix", 3}, {"rows", 3}, {"requests", 3}, {"spread", 2}}},
          {{{"requests", 3}, {"spread", 3}, {"l2_fill", 2}}}};
}

}  // namespace

RowPlanner::RowPlanner(const proto::HardwareProfile& profile, const std::string& backend,
                       kernels::AttentionKernel kernel)
    : profile_(profile),
      kernel_(kernel),
      backend_(attention::create_attention_backend(backend, profile, kernels::page_size_of(kernel))),
      planned_(dynamic_cast<attention::PlannedBackend*>(backend_.get())) {
  if (planned_ == nullptr) throw std::invalid_argument(backend + " plans no kernels of its own");
}

RowPlan RowPlanner::plan(const kernels::AttentionRow& row) {
  RowPlan plan{&row, {}, {}, 1, false, true};
  kernels::with_metadata(row, decodes(), [&](const attention::ForwardMetadata& metadata) {
    planned_->init_forward_metadata(metadata);
    if (decodes()) {
      plan.decode = planned_->decode_plan(row.layer);
    } else {
      plan.extend = planned_->extend_plan(row.layer);
    }
  });
  return plan;
}

PlanCosts RowPlanner::costs(const PlanCoefficients& c, const Corrections& corrections) const {
  return {PlanCost(profile_, c, Residency::kHot, corrections),
          PlanCost(profile_, c, Residency::kCold, corrections)};
}

double RowPlanner::price(const RowPlan& plan, const PlanCosts& costs) {
  const PlanCost& cost = costs.of(*plan.row);
  return decodes() ? planned_->decode_cost(cost, plan.decode, plan.row->layer).seconds
                   : planned_->extend_cost(cost, plan.extend, plan.row->layer).seconds;
}

std::vector<double> RowPlanner::features(const RowPlan& plan, const PlanCosts& costs) const {
  const PlanCost& cost = costs.of(*plan.row);
  const auto values = decodes() ? cost.features(plan.decode, plan.row->layer).values()
                                : cost.features(plan.extend, plan.row->layer).values();
  return {values.begin(), values.end()};
}

CoordinateSearch searched(std::span<const RowPlan> all, const RowPlanner& planner, PlanCoefficients& c) {
  CoordinateSearch search;
  const RowSet rows(all);
  const auto vary = [&search](double& value, double least, double most) { search.vary(value, least, most); };
  if (kernels::is_mla(planner.kernel())) {
    vary_mla(rows, planner.decodes(), c, vary);
  } else {
    vary_full(rows, planner.decodes(), planner.gathers(), c, vary);
  }
  return search;
}

std::vector<std::vector<GridWish>> correction_stages(kernels::AttentionKernel kernel) {
  constexpr std::size_t kMostSurfaces = 6;
  if (kernels::is_mla(kernel)) return mla_stages(kernel);
  return std::vector<std::vector<GridWish>>(kMostSurfaces, attention_grids());
}

}  // namespace tpsim::calibrate
