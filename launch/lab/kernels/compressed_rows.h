// Measured modules of sparse attention. MiniMax M3's: msa_context_module_perf and _generation_, of SGLang
// 0.5.16, whose matrix products, norms and rotations a pass prices apart. DeepSeek V4's: the rows of
// dsv4_csa_context_module_perf and its kin, each the whole attention of one layer (projections, compressors,
// indexer, attention) of SGLang 0.5.14.
//
// The modules ran on dummy weights, whose indexer scores all entries alike. The kernel that picks the best of
// them takes 20 times as long then as with scores that differ (dsv4_csa_topk_calib_perf times both), so that
// difference is taken off a row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "attention/layer_shape.h"
#include "attention/plan.h"
#include "attention/sparse_cost.h"
#include "proto/hardware.pb.h"
#include "rank/config/weight_format.h"
#include "rank/cost/op_cost.h"

namespace tpsim::kernels {

struct CompressedRow {
  attention::LayerShape layer;
  std::uint64_t hidden = 0, q_lora = 0;
  bool fp8_gemm = false;
  bool decode = false;
  std::uint32_t batch = 0, q_len = 0, prefix = 0;
  bool held_out = false;  // one row in five, by a hash of its shape
  double seconds = 0;
  double apart = 0;  // seconds of it that a pass prices apart; of DeepSeek V4 its products
  std::uint32_t multiprocessors = 0;
  attention::SparsePlan plan;
  attention::SparseLoad load;

  bool of_blocks() const { return layer.form == attention::AttentionForm::kBlockSparse; }
  bool has_indexer() const { return layer.index_heads > 0; }
};

// Whether a table has such rows: "dsv4_csa_context_module_perf", "…_generation_…", "dsv4_hca_…".
bool is_compressed_table(const std::string& table);
// Of one table; of more than `most` every so many-th. Throws UserError for a malformed one.
std::vector<CompressedRow> compressed_rows(const std::filesystem::path& folder, const std::string& table,
                                           const proto::HardwareProfile& profile, std::size_t most);
// Its matrix products, over row.load.queries rows; and seconds of them, and of what
// attention/backends/dsv4.cc prices with `attend`.
struct ModuleProduct {
  std::uint64_t n = 0, k = 0;
  rank::WeightFormat format;
};
std::vector<ModuleProduct> products_of(const CompressedRow& row);
double products(const rank::OperatorCosts& costs, const CompressedRow& row);
double attention_price(const attention::SparseCost& attend, const CompressedRow& row);
// Its parts: the kernel that attends, and the indexer (0 without); and what their corrections see.
double attend_price(const attention::SparseCost& attend, const CompressedRow& row);
double index_price(const attention::SparseCost& attend, const CompressedRow& row);
attention::PlanFeatures attend_features(const attention::SparseCost& attend, const CompressedRow& row);
attention::PlanFeatures index_features(const attention::SparseCost& attend, const CompressedRow& row);

bool is_block_sparse_table(const std::string& table);
struct BlockSparseRows {
  std::vector<CompressedRow> rows;
  // Modules that were launched one by one in Python and waited for the host: no kernel's time.
  std::size_t waited = 0;
};
BlockSparseRows block_sparse_rows(const std::filesystem::path& folder, const std::string& table,
                                  const proto::HardwareProfile& profile, std::size_t most);

}  // namespace tpsim::kernels
