// Measured attention kernels as batches and layers: the rows of context_attention_perf and
// generation_attention_perf, and of tests/calibration/measured (made by measure_attention.py).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "attention/plan_cost.h"
#include "attention/planned_backend.h"
#include "tests/calibration/kernel_table.h"

namespace tpsim::calibration {

struct AttentionRow {
  attention::LayerShape layer;
  std::vector<std::uint32_t> prefixes;  // extend only
  std::vector<std::uint32_t> lengths;   // new tokens of each sequence (extend), or KV tokens (decode)
  attention::Residency residency = attention::Residency::kHot;
  bool captured = false;  // a decode planned for a captured graph
  double seconds = 0;
};

// `every`: only each every-th matching row.
inline std::vector<AttentionRow> attention_rows(const std::filesystem::path& folder,
                                                const std::string& kernel_source, bool decode,
                                                std::size_t every) {
  const KernelTable table(folder /
                          (decode ? "generation_attention_perf.csv.gz" : "context_attention_perf.csv.gz"));
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

// Rows of one kernel of a CSV that measure_attention.py wrote. Throws std::runtime_error without the file.
inline std::vector<AttentionRow> measured_rows(const std::filesystem::path& csv, const std::string& kernel,
                                               bool decode) {
  std::ifstream stream(csv);
  if (!stream) throw std::runtime_error("cannot read " + csv.string());
  std::string line;
  std::getline(stream, line);
  std::vector<AttentionRow> rows;
  while (std::getline(stream, line)) {
    // kernel,phase,heads,kv_heads,head_dim,page,kv_dtype,prefix,lengths,ms,launches,plan_us
    std::vector<std::string> cells;
    std::stringstream cell_stream(line);
    for (std::string cell; std::getline(cell_stream, cell, ',');) cells.push_back(cell);
    if (cells.size() != 12 || cells[0] != kernel || (cells[1] == "decode") != decode) continue;
    AttentionRow row;
    row.layer.num_q_heads = static_cast<std::uint32_t>(std::stoul(cells[2]));
    row.layer.num_kv_heads = static_cast<std::uint32_t>(std::stoul(cells[3]));
    row.layer.head_dim = row.layer.v_head_dim = static_cast<std::uint32_t>(std::stoul(cells[4]));
    if (cells[6] == "fp8") row.layer.kv_format = NumberFormat::kFp8E4M3;
    row.prefixes = parse_lengths(cells[7]);
    row.lengths = parse_lengths(cells[8]);
    row.residency = attention::Residency::kCold;
    row.captured = kernel == "flashinfer";
    row.seconds = std::strtod(cells[9].c_str(), nullptr) / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
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
  }
  with(metadata);
}

}  // namespace tpsim::calibration
