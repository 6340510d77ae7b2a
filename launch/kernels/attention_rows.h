// Measured attention kernels as batches and layers: the rows of context_attention_perf and
// generation_attention_perf, and of tests/calibration/measured (made by measure_attention.py).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "attention/plan_cost.h"
#include "attention/planned_backend.h"
#include "launch/kernels/kernel_table.h"

namespace tpsim::calibration {

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

inline NumberFormat kv_format(const std::string& dtype) {
  return dtype == "fp8" ? NumberFormat::kFp8E4M3 : NumberFormat::kBf16;
}

// The backend whose kernel a kernel_source of context_attention_perf or generation_attention_perf timed: the
// A100's rows name FlashAttention 2, whose design FlashInfer's kernel shares and which is what SGLang runs on
// Ampere.
inline std::string attention_source_backend(const std::string& kernel_source) {
  return kernel_source == "flash_attention" ? "flashinfer" : kernel_source;
}

// `every`: only each every-th matching row.
inline std::vector<AttentionRow> attention_rows(const std::filesystem::path& folder,
                                                const std::string& kernel_source, bool decode,
                                                std::size_t every) {
  const KernelTable table(
      table_file(folder, decode ? "generation_attention_perf" : "context_attention_perf"));
  std::vector<AttentionRow> rows;
  std::size_t matching = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source") != kernel_source || matching++ % every != 0) continue;
    AttentionRow row;
    row.layer.num_q_heads = static_cast<std::uint32_t>(table.number(i, "num_heads"));
    row.layer.num_kv_heads = static_cast<std::uint32_t>(table.number(i, "num_key_value_heads"));
    row.layer.head_dim = row.layer.v_head_dim = static_cast<std::uint32_t>(table.number(i, "head_dim"));
    row.layer.sliding_window = static_cast<std::uint32_t>(table.number(i, "window_size"));
    row.layer.q_bytes = table.text(i, "attn_dtype") == "fp8" ? 1 : 2;
    if (table.text(i, "kv_cache_dtype") == "fp8") row.layer.kv_format = NumberFormat::kFp8E4M3;
    const auto batch_size = static_cast<std::size_t>(table.number(i, "batch_size"));
    const auto length =
        static_cast<std::uint32_t>(decode ? table.number(i, "step") + 1 : table.number(i, "isl"));
    row.lengths.assign(batch_size, length);
    if (!decode) row.prefixes.assign(batch_size, 0);
    row.seconds = table.number(i, "latency_ms") / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

// What an MLA table times.
enum class MlaKernel : std::uint8_t {
  kDecode,
  kExtend,
  kPrefill
};  // absorbed decode, absorbed extend, expanded
inline const char* class_suffix(MlaKernel kernel) {
  return kernel == MlaKernel::kDecode   ? "mla_decode"
         : kernel == MlaKernel::kExtend ? "mla_extend"
                                        : "mla_prefill";
}

// What a kernel_source of context_mla_perf or generation_mla_perf timed: of trtllm_mla's context rows the
// expanded kernel, of the others the absorbed one.
struct MlaSourceKernel {
  std::string backend;
  MlaKernel kernel = MlaKernel::kDecode;
};
inline MlaSourceKernel mla_source_kernel(const std::string& kernel_source, bool decode) {
  return {kernel_source == "flash_attention" ? "fa3" : kernel_source, decode ? MlaKernel::kDecode
                                                                      : kernel_source == "trtllm_mla"
                                                                          ? MlaKernel::kPrefill
                                                                          : MlaKernel::kExtend};
}

// DeepSeek's layer over `heads` heads of one rank.
inline attention::LayerShape mla_layer(MlaKernel kernel, std::uint32_t heads) {
  attention::LayerShape layer;
  const bool expanded = kernel == MlaKernel::kPrefill;
  layer.form = expanded ? attention::AttentionForm::kMlaExpanded : attention::AttentionForm::kMlaAbsorbed;
  layer.num_q_heads = heads;
  layer.num_kv_heads = expanded ? heads : 1;
  layer.head_dim = expanded ? 192 : 576;
  layer.v_head_dim = expanded ? 128 : 512;
  return layer;
}

// One row in five, left out of the fits of MLA kernels. Of the shape alone, so that every dtype of a shape is
// on the same side.
inline bool held_out(const AttentionRow& row) {
  std::uint64_t hash = row.layer.num_q_heads;
  for (const std::uint64_t value : {std::uint64_t{row.lengths.size()}, std::uint64_t{row.lengths.front()}}) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash % 5 == 0;
}

// The rows of generation_mla_perf, or of context_mla_perf, whose kernel is absorbed or not by backend.
inline std::vector<AttentionRow> mla_rows(const std::filesystem::path& folder,
                                          const std::string& kernel_source, MlaKernel kernel) {
  const bool decode = kernel == MlaKernel::kDecode;
  const KernelTable table(table_file(folder, decode ? "generation_mla_perf" : "context_mla_perf"));
  std::vector<AttentionRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source") != kernel_source) continue;
    AttentionRow row;
    row.layer = mla_layer(kernel, static_cast<std::uint32_t>(table.number(i, "num_heads")));
    row.layer.kv_format = kv_format(table.text(i, "kv_cache_dtype"));
    const auto length = static_cast<std::uint32_t>(table.number(i, "isl") + table.number(i, "step"));
    row.lengths.assign(static_cast<std::size_t>(table.number(i, "batch_size")), length);
    if (!decode) row.prefixes.assign(row.lengths.size(), 0);
    row.seconds = table.number(i, "latency_ms") / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

// "7;3x2" is 7, 3, 3.
inline std::vector<std::uint32_t> parse_lengths(const std::string& text) {
  std::vector<std::uint32_t> values;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ';');) {
    const std::size_t times = part.find('x');
    const std::size_t count = times == std::string::npos ? 1 : std::stoul(part.substr(times + 1));
    values.insert(values.end(), count, static_cast<std::uint32_t>(std::stoul(part)));
  }
  return values;
}

// The cells of each line of a CSV but the first. Throws std::runtime_error without the file.
inline std::vector<std::vector<std::string>> csv_rows(const std::filesystem::path& csv) {
  std::ifstream stream(csv);
  if (!stream) throw std::runtime_error("cannot read " + csv.string());
  std::string line;
  std::getline(stream, line);
  std::vector<std::vector<std::string>> rows;
  while (std::getline(stream, line)) {
    if (line.ends_with('\r')) line.pop_back();
    std::stringstream cells(line);
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

// Rows of one backend of a CSV that measure_attention.py wrote (12 cells a row: equal and ragged batches), or
// of one of ragged batches alone (14: the window, and `held` where no fit may see the row). Throws
// std::runtime_error without the file.
inline std::vector<AttentionRow> measured_rows(const std::filesystem::path& csv, const std::string& backend,
                                               bool decode) {
  std::vector<AttentionRow> rows;
  for (const std::vector<std::string>& cells : csv_rows(csv)) {
    // kernel,phase,heads,kv_heads,head_dim,page,kv_dtype,prefix,lengths,ms,launches,plan_us[,window,part]
    const bool with_part = cells.size() == 14;
    if (!with_part && cells.size() != 12) continue;
    // FlashInfer's ragged wrapper, where a prefill is not in pieces; the older file's are all of it.
    const bool ragged_wrapper = cells[0] == "flashinfer_ragged";
    if (cells[0] != backend && !(ragged_wrapper && backend == "flashinfer")) continue;
    if ((cells[1] == "decode") != decode) continue;
    AttentionRow row;
    row.in_pieces = with_part && !ragged_wrapper;
    if (with_part) {
      row.layer.sliding_window = static_cast<std::uint32_t>(std::stoul(cells[12]));
      row.held = cells[13] == "held";
    }
    row.layer.num_q_heads = static_cast<std::uint32_t>(std::stoul(cells[2]));
    row.layer.num_kv_heads = static_cast<std::uint32_t>(std::stoul(cells[3]));
    row.layer.head_dim = row.layer.v_head_dim = static_cast<std::uint32_t>(std::stoul(cells[4]));
    if (cells[6] == "fp8") row.layer.kv_format = NumberFormat::kFp8E4M3;
    row.prefixes = parse_lengths(cells[7]);
    row.lengths = parse_lengths(cells[8]);
    row.residency = attention::Residency::kCold;
    row.captured = backend == "flashinfer";
    row.seconds = std::strtod(cells[9].c_str(), nullptr) / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

// Rows of one kernel of a CSV that measure_mla.py wrote, or measure_ragged_mla.py (12 cells a row: `held`
// where no fit may see it).
inline std::vector<AttentionRow> measured_mla_rows(const std::filesystem::path& csv, const std::string& name,
                                                   MlaKernel kernel) {
  std::vector<AttentionRow> rows;
  for (const std::vector<std::string>& cells : csv_rows(csv)) {
    // kernel,phase,heads,kv_heads,head_dim,v_head_dim,page,kv_dtype,prefix,lengths,ms[,part]
    if ((cells.size() != 11 && cells.size() != 12) || cells[0] != name) continue;
    const MlaKernel measured = cells[1] == "decode" ? MlaKernel::kDecode
                               : cells[4] == "576"  ? MlaKernel::kExtend
                                                    : MlaKernel::kPrefill;
    if (measured != kernel) continue;
    AttentionRow row;
    row.layer = mla_layer(kernel, static_cast<std::uint32_t>(std::stoul(cells[2])));
    row.layer.kv_format = kv_format(cells[7]);
    if (cells[7] == "fp8") row.layer.q_bytes = 1;
    if (cells.size() == 12) row.held = cells[11] == "held";
    row.prefixes = parse_lengths(cells[8]);
    row.lengths = parse_lengths(cells[9]);
    row.residency = attention::Residency::kCold;
    row.seconds = std::strtod(cells[10].c_str(), nullptr) / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

// One shape in four, by its hash: rows of the tables that no fit sees, for its errors.
inline bool kept_aside(const AttentionRow& row) {
  const attention::LayerShape& layer = row.layer;
  std::uint64_t hash = 1469598103934665603U;
  for (const std::uint64_t part : std::initializer_list<std::uint64_t>{
           layer.num_q_heads, layer.num_kv_heads, layer.head_dim, layer.sliding_window, layer.q_bytes,
           static_cast<std::uint64_t>(layer.kv_format), row.lengths.size(), row.lengths[0]}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return (hash >> 8) % 4 == 0;
}

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
inline double price(attention::PlannedBackend& backend, const attention::PlanCost& cost,
                    const AttentionRow& row, bool decode) {
  double seconds = 0;
  with_metadata(row, decode, [&](const attention::ForwardMetadata& metadata) {
    backend.init_forward_metadata(metadata);
    seconds = decode ? backend.decode_cost(cost, backend.decode_plan(row.layer), row.layer).seconds
                     : backend.extend_cost(cost, backend.extend_plan(row.layer), row.layer).seconds;
  });
  return seconds;
}

}  // namespace tpsim::calibration
