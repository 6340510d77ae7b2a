#include "launch/lab/calibrate/mla_sources.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/kernels/kernel_table.h"
#include "rank/cost/op_cost.h"

namespace tpsim::calibrate {
namespace {

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
