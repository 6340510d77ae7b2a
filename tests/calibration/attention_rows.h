// The rows of context_attention_perf and generation_attention_perf as batches and layers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "attention/planned_backend.h"
#include "tests/calibration/kernel_table.h"

namespace tpsim::calibration {

struct AttentionRow {
  attention::LayerShape layer;
  std::uint32_t batch_size = 0;
  std::uint32_t length = 0;  // new tokens of a sequence (extend), or KV tokens (decode)
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
    row.layer.kv_bytes = table.text(i, "kv_cache_dtype") == "fp8" ? 1 : 2;
    row.batch_size = static_cast<std::uint32_t>(table.number(i, "batch_size"));
    row.length = static_cast<std::uint32_t>(decode ? table.number(i, "step") + 1 : table.number(i, "isl"));
    row.seconds = table.number(i, "latency_ms") / 1e3;
    rows.push_back(row);
  }
  return rows;
}

// Calls `with` with the metadata of the row's batch of equal sequences.
template <typename With>
void with_metadata(const AttentionRow& row, bool decode, With with) {
  static const std::vector<std::uint32_t> zeros(4096, 0);
  const std::vector<std::uint32_t> lengths(row.batch_size, row.length);
  attention::ForwardMetadata metadata;
  metadata.forward_mode = decode ? proto::DECODE : proto::EXTEND;
  if (decode) {
    metadata.decode_seq_lens = lengths;
  } else {
    metadata.extend_lens = lengths;
    metadata.extend_prefix_lens = std::span(zeros).first(row.batch_size);
  }
  with(metadata);
}

}  // namespace tpsim::calibration
