#include "launch/lab/calibrate/mla_bmm_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/calibrate/coordinate_search.h"
#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/kernel_table.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/mla_cost.h"

namespace tpsim::calibrate {
namespace {

constexpr double kLatent = 512, kHead = 128;
constexpr double kL2 = 3;  // bandwidth of the L2 cache over that of memory, where no row has told it

double width_of(const BmmRow& row) { return row.into_latent ? kLatent : kHead; }

class Prices {
 public:
  Prices(const proto::HardwareProfile& profile, bool fp8) : profile_(profile), bytes_(fp8 ? 1 : 2) {}

  // What fits the L2 is there already (as in attention/plan_cost.h).
  double of(const BmmRow& row, const OperatorCoefficients& c, const Corrections& corrections,
            double l2) const {
    const double n = width_of(row), k = row.into_latent ? kHead : kLatent;
    const double all = rank::batched_gemm(c, {}, profile_, row.heads, row.tokens, n, k, bytes_).bytes;
    const double missed = std::clamp((all / profile_.l2_bytes() - 0.7) / 0.8, 0.0, 1.0);
    return rank::batched_gemm(c, corrections, profile_, row.heads, row.tokens, n, k, bytes_,
                              missed + (1 - missed) / l2)
        .seconds;
  }

  RelativeErrors errors(const std::vector<BmmRow>& rows, const OperatorCoefficients& c,
                        const Corrections& corrections, double l2) const {
    std::vector<double> ratios;
    for (const BmmRow& row : rows)
      if (row.left_out) ratios.push_back(row.seconds / of(row, c, corrections, l2));
    return relative_errors(ratios);
  }

 private:
  const proto::HardwareProfile& profile_;
  double bytes_;
};

using attention::KernelCost;
using kernels::AttentionKernel;
using kernels::AttentionRow;
using kernels::KernelTable;

// New tokens of a row.
double tokens_of(const AttentionRow& row) {
  const auto requests = static_cast<double>(row.lengths.size());
  return row.prefixes.empty() ? requests : requests * row.lengths.front();
}

// The projections of DeepSeek V3 around a layer's attention, its norms, rotation and copies.
double module_rest(const rank::OperatorCosts& costs, const attention::LayerShape& layer, double tokens) {
  const std::uint32_t heads = layer.num_q_heads;
  KernelCost rest = costs.gemm(tokens, 1536 + 576, 7168);
  rest += costs.gemm(tokens, std::uint64_t{heads} * 192, 1536);
  rest += costs.gemm(tokens, std::uint64_t{heads} * 256, 512);
  rest += costs.gemm(tokens, 7168, std::uint64_t{heads} * 128);
  rest += costs.elementwise(tokens * (2 * 1536 + 4 * 576) * 2);
  rest += costs.elementwise(tokens * heads * 4 * 192);
  rest += costs.elementwise(tokens * heads * 4 * 256);
  return rest.seconds;
}

}  // namespace

std::vector<BmmRow> bmm_rows(const std::filesystem::path& folder, bool fp8) {
  const kernels::KernelTable table(kernels::table_file(folder, "mla_bmm_perf"));
  std::vector<BmmRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if ((table.text(i, "bmm_dtype") == "fp8") != fp8) continue;
    BmmRow row{table.number(i, "num_heads"), table.number(i, "num_tokens"),
               table.number(i, "latency_ms") / 1e3, table.text(i, "op_name") == "mla_gen_pre", false};
    const auto hash = static_cast<std::uint64_t>(row.heads * 7919 + row.tokens) * 0x9E3779B97F4A7C15ULL;
    row.left_out = (hash >> 40) % 5 == 0;
    rows.push_back(row);
  }
  return rows;
}

ClassFit fit_bmm(const std::vector<BmmRow>& rows, bool fp8, const proto::HardwareProfile& profile) {
  constexpr double kFarOff = 0.7;  // beyond it one row is as bad as another
  const Prices prices(profile, fp8);
  OperatorCoefficients c;
  double l2 = kL2;
  const auto loss = [&] {
    double sum = 0;
    for (const BmmRow& row : rows)
      if (!row.left_out)
        sum += std::min(kFarOff, std::abs(std::log(prices.of(row, c, {}, l2) / row.seconds)));
    return sum;
  };
  CoordinateSearch search;
  search.vary(c.memory, 0.02, 1);
  search.vary(c.fixed_seconds, 2e-7, 5e-4);
  search.vary(c.compute, 0.05, 1);
  search.vary(c.tile_seconds, 1e-9, 1e-4);
  search.vary(c.overlap, 1e-3, 1);
  search.vary(l2, 1, 10);
  search.minimise(loss, 3);
  std::vector<SurfaceRow> known;
  for (const BmmRow& row : rows)
    if (!row.left_out)
      known.push_back({{row.heads, row.tokens, width_of(row)}, row.seconds / prices.of(row, c, {}, l2)});
  std::vector<GridWish> grids;
  for (const std::size_t points : {3, 5, 7, 10, 14})
    grids.push_back({{"heads", std::min<std::size_t>(points, 8)}, {"m", points}, {"n", 2}});
  const std::vector<std::vector<GridWish>> stages = {grids};
  ClassFit out;
  out.rows = rows.size();
  out.entry.set_operator_class(fp8 ? "mla_bmm_fp8" : "mla_bmm");
  write_coefficients(c, out.entry);
  add_corrections(std::move(known), kBatchedGemmFeatures, stages, {}, out.entry);
  out.formula = prices.errors(rows, c, {}, l2);
  out.left_out = prices.errors(rows, c, {&out.entry, kBatchedGemmFeatures}, l2);
  out.set_errors(out.left_out);
  const std::string& name = out.entry.operator_class();
  out.before = prices.errors(rows, coefficients_of<OperatorCoefficients>(profile, name),
                             {find_efficiency(profile, name), kBatchedGemmFeatures}, l2);
  return out;
}

std::vector<AttentionRow> module_rows(const std::filesystem::path& folder, const std::string& kernel_source,
                                      AttentionKernel kernel, const proto::HardwareProfile& profile) {
  constexpr double kMostRest = 0.5;
  const KernelTable table(kernels::table_file(folder, kernel == AttentionKernel::kMlaDecode
                                                          ? "mla_generation_module_perf"
                                                          : "mla_context_module_perf"));
  const rank::OperatorCosts costs(profile);
  std::vector<AttentionRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source") != kernel_source || table.text(i, "gemm_type") != "bfloat16") continue;
    AttentionRow row = kernels::mla_row(table, i, kernel);
    if (kernel != AttentionKernel::kMlaPrefill)
      row.layer.kv_format = kernels::kv_format(table.text(i, "kv_cache_dtype"));
    row.rest_seconds = module_rest(costs, row.layer, tokens_of(row));
    if (row.rest_seconds <= kMostRest * row.seconds) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<AttentionRow> rows_beside(const std::filesystem::path& folder, const std::string& name,
                                      const std::string& known, AttentionKernel kernel,
                                      const proto::HardwareProfile& profile) {
  constexpr double kMostRest = 0.6;
  constexpr double kFewTokens = 1024;  // of an eager prefill that takes the host's time
  const bool decode = kernel == AttentionKernel::kMlaDecode;
  const KernelTable table(
      kernels::table_file(folder, decode ? "wideep_generation_mla_perf" : "wideep_context_mla_perf"));
  const auto backend = attention::create_attention_backend(known, profile, kernels::page_size_of(kernel));
  auto& planned = dynamic_cast<attention::PlannedBackend&>(*backend);
  const attention::PlanCost cost(profile,
                                 fmt::format("attention.{}.{}", known, kernels::class_suffix(kernel)),
                                 attention::Residency::kHot);
  const auto shape = [](const AttentionRow& row) {
    return fmt::format("{},{},{}", row.layer.num_q_heads, row.lengths.size(), row.lengths.front());
  };
  std::map<std::string, double> rest;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source") != known) continue;
    const AttentionRow row = kernels::mla_row(table, i, kernel);
    rest[shape(row)] = row.seconds - kernels::price(planned, cost, row, decode);
  }
  std::vector<AttentionRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source") != name) continue;
    AttentionRow row = kernels::mla_row(table, i, kernel);
    const auto found = rest.find(shape(row));
    if (found == rest.end()) continue;
    row.rest_seconds = found->second;
    const bool hosts = !decode && tokens_of(row) < kFewTokens;
    if (!hosts && row.rest_seconds >= 0 && row.rest_seconds <= kMostRest * row.seconds)
      rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tpsim::calibrate
