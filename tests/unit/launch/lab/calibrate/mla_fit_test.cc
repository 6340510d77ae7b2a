// Kernels made by the formulas at known coefficients: the fits find what they were made of.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/plan_cost.h"
#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "attention/sparse_cost.h"
#include "launch/lab/calibrate/attention_fit.h"
#include "launch/lab/calibrate/mla_bmm_fit.h"
#include "launch/lab/calibrate/sparse_fit.h"
#include "rank/cost/hardware.h"
#include "rank/llm/mla_cost.h"

namespace tpsim::calibrate {
namespace {

using attention::Residency;
using kernels::AttentionKernel;
using kernels::AttentionRow;

// Decodes of 16 and 128 heads, each a factor from what the coefficients say.
std::vector<AttentionRow> decodes(const proto::HardwareProfile& profile, const PlanCoefficients& c,
                                  double noise) {
  const auto backend =
      attention::create_attention_backend("fa3", profile, kernels::page_size_of(AttentionKernel::kMlaDecode));
  auto& planned = dynamic_cast<attention::PlannedBackend&>(*backend);
  const attention::PlanCost cost(profile, c, Residency::kHot);
  std::vector<AttentionRow> rows;
  for (const std::uint32_t heads : {16U, 128U}) {
    for (const std::size_t requests : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U}) {
      for (const std::uint32_t length : {64U, 200U, 256U, 900U, 1024U, 4096U, 9000U, 16384U}) {
        AttentionRow row;
        row.layer = kernels::mla_layer(AttentionKernel::kMlaDecode, heads);
        row.lengths.assign(requests, length);
        const double sign = rows.size() % 2 == 0 ? 1 : -1;
        row.seconds = kernels::price(planned, cost, row, true) * std::exp(sign * noise);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

TEST(MlaFit, FindsWhatTheRowsWereMadeOf) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  PlanCoefficients truth;
  truth.memory = 0.55;
  truth.compute = 0.4;
  truth.fixed_seconds = 9e-6;
  const AttentionSource source{decodes(profile, truth, 0.01), false};
  const AttentionFit fit = fit_attention(profile, "fa3", AttentionKernel::kMlaDecode, {&source, 1});
  EXPECT_EQ(fit.entry.operator_class(), "attention.fa3.mla_decode");
  EXPECT_EQ(fit.priced.size(), source.rows.size());
  EXPECT_GT(fit.left_out.rows, 8U);
  EXPECT_LT(fit.left_out.median, 0.03);
  EXPECT_LT(fit.left_out.p90, 0.2);
  EXPECT_EQ(fit.entry.median_error(), fit.left_out.median);
  // By a profile that has what was found, the rows left out are as far off as the fit says.
  proto::HardwareProfile fitted = profile;
  for (proto::OperatorEfficiency& entry : *fitted.mutable_efficiencies())
    if (entry.operator_class() == fit.entry.operator_class()) entry = fit.entry;
  const AttentionFit again = fit_attention(fitted, "fa3", AttentionKernel::kMlaDecode, {&source, 1});
  EXPECT_NEAR(again.before.median, fit.left_out.median, 1e-12);
  EXPECT_GT(fit.before.median, 0.1);
}

TEST(MlaFit, IsOfTheRowsThatAreNotHeld) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  AttentionSource source{decodes(profile, {}, 0), true};
  std::size_t held = 0;
  for (std::size_t i = 0; i < source.rows.size(); i += 3) {
    source.rows[i].held = true;
    source.rows[i].seconds *= 10;  // seen by no fit
    ++held;
  }
  const AttentionFit fit = fit_attention(profile, "fa3", AttentionKernel::kMlaDecode, {&source, 1});
  EXPECT_EQ(fit.left_out.rows, held);
  EXPECT_NEAR(fit.left_out.median, 0.9, 0.03);
  std::vector<double> fitted;
  for (const AttentionFit::Priced& p : fit.priced)
    if (!p.left_out) fitted.push_back(p.row->seconds / p.seconds);
  EXPECT_LT(relative_errors(fitted).median, 0.03);
}

TEST(MlaFit, RefusesNoRowsAndBackendsWithoutPlans) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  EXPECT_THROW(fit_attention(profile, "fa3", AttentionKernel::kMlaDecode, {}), std::invalid_argument);
}

TEST(MlaBmmFit, FindsWhatTheRowsWereMadeOf) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  OperatorCoefficients truth;
  truth.memory = 0.5;
  truth.fixed_seconds = 4e-6;
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "bmm";
  std::filesystem::create_directories(folder);
  std::ofstream table(folder / "mla_bmm_perf.csv");
  table << "version,op_name,kernel_source,bmm_dtype,num_tokens,num_heads,latency_ms\n";
  for (const double heads : {8, 16, 64, 128})
    for (const double tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024})
      for (const bool pre : {true, false}) {
        const double seconds =
            rank::batched_gemm(truth, {}, profile, heads, tokens, pre ? 512 : 128, pre ? 128 : 512, 2)
                .seconds;
        table << "1," << (pre ? "mla_gen_pre" : "mla_gen_post") << ",default,bfloat16," << tokens << ","
              << heads << "," << 1e3 * seconds << "\n";
      }
  table.close();
  const std::vector<BmmRow> rows = bmm_rows(folder, false);
  EXPECT_EQ(rows.size(), 88U);
  EXPECT_TRUE(bmm_rows(folder, true).empty());
  const ClassFit fit = fit_bmm(rows, false, profile);
  EXPECT_EQ(fit.entry.operator_class(), "mla_bmm");
  EXPECT_GT(fit.left_out.rows, 8U);
  EXPECT_LT(fit.left_out.median, 0.05);
  EXPECT_GT(fit.before.median, fit.left_out.median);
  std::filesystem::remove_all(folder);
}

// Modules of one kernel, with and without the indexer, surrounded by a fixed rest.
std::vector<kernels::SparseRow> modules(const proto::HardwareProfile& profile) {
  constexpr double kRest = 4e-5;
  PlanCoefficients kernel;
  kernel.memory = 0.5;
  IndexCoefficients index;
  const attention::SparseCost costs(profile, kernel, index);
  attention::LayerShape layer;
  layer.num_kv_heads = 1;
  layer.head_dim = 576;
  layer.v_head_dim = 512;
  std::vector<kernels::SparseRow> rows;
  for (const std::uint32_t heads : {16U, 64U, 128U})
    for (const std::uint32_t batch : {1U, 4U, 16U, 64U, 256U})
      for (const std::uint32_t prefix : {512U, 2048U, 8192U, 32768U})
        for (const bool indexer : {true, false}) {
          kernels::SparseRow row;
          row.kernel = "flashmla_kv";
          row.model = {7168, 1536, 128, 128, 64};
          row.indexer = indexer;
          row.heads = heads;
          row.batch = batch;
          row.q_len = 1;
          row.prefix = prefix;
          row.held_out = rows.size() % 5 == 4;
          attention::SparsePlan plan;
          for (std::uint32_t i = 0; i < batch; ++i) plan.items.push_back({i, prefix, 1});
          plan.top_k = kernels::kTopK;
          plan.whole_list = true;
          plan.rows = std::max(64U, heads);
          const double share = profile.multiprocessors() / double(batch);
          const auto parts = static_cast<std::uint32_t>(std::min(16.0, std::max(1.0, share)));
          plan.part = parts == 1 ? 0 : kernels::kTopK / parts;
          const attention::SparseLoad load = attention::load_of(plan);
          layer.num_q_heads = heads;
          row.seconds = kRest + costs.attend(plan, load, layer, 1152).seconds;
          if (indexer) row.seconds += costs.index(load, {64, 128}, false).seconds;
          rows.push_back(std::move(row));
        }
  return rows;
}

TEST(SparseFit, TakesModulesApart) {
  const proto::HardwareProfile profile = rank::load_hardware("h200-sxm");
  const std::vector<kernels::SparseRow> rows = modules(profile);
  const SparseFit fit = fit_sparse(profile, true, rows);
  ASSERT_EQ(fit.classes.size(), 2U);
  EXPECT_EQ(fit.classes[0].entry.operator_class(), "attention.nsa.flashmla_kv.decode");
  EXPECT_EQ(fit.classes[1].name, "indexer");
  EXPECT_EQ(fit.priced.size(), rows.size());
  EXPECT_EQ(fit.classes[0].rows, rows.size());
  EXPECT_EQ(fit.classes[1].rows, rows.size() / 2);
  for (const SparseFit::Class& of : fit.classes) {
    EXPECT_GT(of.left_out.rows, 5U);
    EXPECT_LT(of.left_out.median, 0.12)
        << of.name;  // matrix products are part of every module that is fitted
    EXPECT_EQ(of.entry.median_error(), of.left_out.median);
  }
  EXPECT_GT(fit.classes[0].before.median, fit.classes[0].left_out.median);
}

TEST(SparseFit, SaysNothingOfNoRows) {
  EXPECT_TRUE(fit_sparse(rank::load_hardware("h200-sxm"), false, {}).classes.empty());
}

}  // namespace
}  // namespace tpsim::calibrate
