// Measured attention kernels as batches and layers: the rows of context_attention_perf,
// generation_attention_perf and their MLA counterparts, and of tests/calibration/measured (made by
// measure_attention.py and its kin).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "attention/plan.h"
#include "attention/plan_cost.h"
#include "attention/planned_backend.h"
#include "attention/sparse_cost.h"
#include "launch/lab/kernels/kernel_table.h"

namespace tpsim::kernels {

struct AttentionRow {
  attention::LayerShape layer;
  std::vector<std::uint32_t> prefixes;  // extend only
  std::vector<std::uint32_t> lengths;   // new tokens of each sequence (extend), or KV tokens (decode)
  attention::Residency residency = attention::Residency::kHot;
  bool captured = false;   // a decode planned for a captured graph
  bool in_pieces = false;  // a prefill whose other kernels are captured
  bool held = false;       // kept out of every fit
  double seconds = 0;
  double rest_seconds = 0;  // of other operators that the row timed with it, by their own prices
};

// What a row times. Of MLA: absorbed decode, absorbed extend, expanded prefill.
enum class AttentionKernel : std::uint8_t { kDecode, kExtend, kMlaDecode, kMlaExtend, kMlaPrefill };
// "decode", "mla_extend": ends the name of its class.
const char* class_suffix(AttentionKernel kernel);
bool decodes(AttentionKernel kernel);
bool is_mla(AttentionKernel kernel);
// Tokens a page, as the kernel was measured.
std::uint32_t page_size_of(AttentionKernel kernel);

NumberFormat kv_format(const std::string& dtype);
// DeepSeek's layer over `heads` heads of one rank.
attention::LayerShape mla_layer(AttentionKernel kernel, std::uint32_t heads);

// A kernel_source of a table: which backend's kernel it timed. FlashAttention 2 in the A100's rows counts as
// FlashInfer's, whose kernel shares its design and is what SGLang runs on Ampere. Of trtllm_mla's context
// rows the kernel is the expanded one, of the others' the absorbed one.
struct TimedKernel {
  std::string backend;
  AttentionKernel kernel = AttentionKernel::kDecode;
};
TimedKernel timed_kernel(const std::string& kernel_source, bool mla, bool decode);

// The rows of a kernel_source in a folder's table of the kernel: generation_attention_perf,
// context_attention_perf, generation_mla_perf or context_mla_perf.
std::vector<AttentionRow> attention_rows(const std::filesystem::path& folder,
                                         const std::string& kernel_source, AttentionKernel kernel);
// Row `i` of a table of MLA kernels or modules, as if its cache held 16 bits.
AttentionRow mla_row(const KernelTable& table, std::size_t i, AttentionKernel kernel);
// Rows of one backend of a CSV that measure_attention.py, measure_ragged.py, measure_mla.py or
// measure_ragged_mla.py wrote; those of ragged batches say in a column "part" which no fit may see.
std::vector<AttentionRow> measured_rows(const std::filesystem::path& csv, const std::string& backend,
                                        AttentionKernel kernel);

// A cell such as "7;3x2": 7, 3, 3. Throws UserError for what is none, or more than any measurement.
std::vector<std::uint32_t> lengths_of(const KernelTable& table, std::size_t row, const std::string& column);

// Whether a fit to the rows of a table leaves this one out, for its errors: of MLA's one shape in five, so
// that every dtype of a shape is on the same side; else one in four, by a hash.
bool is_left_out(const AttentionRow& row, AttentionKernel kernel);

// Calls `with` with the metadata of the row's batch.
template <typename With>
void with_metadata(const AttentionRow& row, bool decode, With with) {
  attention::ForwardMetadata metadata;
  metadata.forward_mode = decode ? proto::DECODE : proto::EXTEND;
  if (decode) {
    metadata.decode_seq_lens = row.lengths;
    metadata.capture_bucket = row.captured ? static_cast<std::uint32_t>(row.lengths.size()) : 0;
  } else {
    metadata.extend_lens = row.lengths;
    metadata.extend_prefix_lens = row.prefixes;
    metadata.in_pieces = row.in_pieces;
  }
  with(metadata);
}

// Seconds of the row's kernel as its backend plans it, at the prices of `cost`.
double price(attention::PlannedBackend& backend, const attention::PlanCost& cost, const AttentionRow& row,
             bool decode);

// Measured modules of sparse attention: the rows of dsa_context_module_perf and dsa_generation_module_perf,
// each the whole attention module of one layer (projections, indexer or not, attention) of SGLang 0.5.14.

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
