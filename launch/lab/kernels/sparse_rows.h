// Measured modules of sparse attention: the rows of dsa_context_module_perf and dsa_generation_module_perf,
// each the whole attention module of one layer (projections, indexer or not, attention) of SGLang 0.5.14.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "attention/plan.h"
#include "attention/sparse_cost.h"

namespace tpsim::kernels {

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

// FNV-1a, by which rows and loads are held out: the same on every machine.
std::uint64_t hash_of(const std::string& text);

// The rows of a folder's table. Throws UserError for a malformed one.
std::vector<SparseRow> sparse_rows(const std::filesystem::path& folder, bool decode);

}  // namespace tpsim::kernels
