// Measured modules of sparse attention: the rows of dsa_context_module_perf and dsa_generation_module_perf,
// each the whole attention module of one layer (projections, indexer or not, attention) of SGLang 0.5.14.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "attention/sparse_cost.h"
#include "attention/sparse_plan.h"
#include "launch/kernels/kernel_table.h"

namespace tpsim::calibration {

// Widths of DeepSeek-V3.2, and of GLM-5 and 5.2 (the indexer of every layer of 5.2 is left out in "skip"
// rows).
struct SparseModel {
  double hidden, q_lora, nope, v, index_heads;
};
inline constexpr double kLatent = 512, kRope = 64, kIndexDim = 128;
inline constexpr std::uint32_t kTopK = 2048;

struct SparseRow {
  std::string kernel;  // "flashmla_sparse", "fa3" …; "dense" for dense attention of short prefills
  SparseModel model{};
  bool indexer = false;
  bool fp8_gemm = false;
  bool fp8_kv = false;
  std::uint32_t heads = 0;  // of the rank
  std::uint32_t batch = 0, q_len = 0, prefix = 0;
  std::string group;      // rows of one server and one path through its code
  bool held_out = false;  // one row in five, by a hash of its shape
  double seconds = 0;
  attention::SparsePlan plan;
  attention::SparseLoad load;
};

// FNV-1a.
inline std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash ^ hash >> 29;
}

inline std::vector<SparseRow> sparse_rows(const std::filesystem::path& folder, bool decode) {
  const KernelTable table(
      table_file(folder, decode ? "dsa_generation_module_perf" : "dsa_context_module_perf"));
  std::vector<SparseRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    SparseRow row;
    const std::string& source = table.text(i, "kernel_source");
    // Prefills of the modules without indexer are dense, too, in name; they take 1.8 times as long as the
    // same work with its indexer's keys.
    row.indexer = table.text(i, "op_name").find("skip_indexer") == std::string::npos;
    const bool dense = source.find("dense_mha") != std::string::npos;
    row.kernel = dense ? "dense" : source.substr(source.find("indexer_") + 8);
    row.model = table.text(i, "model").find("GLM") == std::string::npos
                    ? SparseModel{7168, 1536, 128, 128, 64}
                    : SparseModel{6144, 2048, 192, 256, 32};
    row.fp8_gemm = table.text(i, "gemm_type") == "fp8_block";
    row.fp8_kv = table.text(i, "kv_cache_dtype") == "fp8";
    row.heads = static_cast<std::uint32_t>(table.number(i, "num_heads"));
    row.batch = static_cast<std::uint32_t>(table.number(i, "batch_size"));
    row.q_len = static_cast<std::uint32_t>(table.number(i, "isl"));
    row.prefix = static_cast<std::uint32_t>(table.number(i, "step"));
    row.seconds = table.number(i, "latency_ms") / 1e3;
    row.group =
        source + table.text(i, "model") + table.text(i, "kv_cache_dtype") + (row.prefix > 0 ? "+" : "");
    std::string shape;
    for (const char* column :
         {"kernel_source", "model", "kv_cache_dtype", "tp_size", "batch_size", "isl", "step"})
      shape += table.text(i, column) + ",";
    row.held_out = hash_of(shape) % 5 == 0;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tpsim::calibration
