#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>

#include "launch/lab/calibrate/kernel_fits.h"
#include "launch/lab/kernels/attention_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::calibrate {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& known_tables() {
  static const std::vector<std::string> tables = split_list(
      "gemm_perf moe_perf custom_allreduce_perf nccl_perf context_attention_perf generation_attention_perf "
      "context_mla_perf generation_mla_perf mla_context_module_perf wideep_context_mla_perf "
      "wideep_generation_mla_perf mla_bmm_perf dsa_context_module_perf dsa_generation_module_perf",
      ' ');
  return tables;
}

// "gemm_perf" of ".../gemm_perf.csv.gz"; empty where the name is no table's.
std::string table_of_file(const fs::path& path) {
  std::string name = path.filename().string();
  for (const std::string_view end : {".gz", ".csv"}) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
  }
  return std::ranges::count(known_tables(), name) > 0 ? name : "";
}

// Which of our own tools' tables a plain CSV begins as; empty: none.
std::string own_table(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return "";
  if (line.starts_with("kernel,phase,heads,kv_heads,head_dim,v_head_dim,")) return kOwnMla;
  return line.starts_with("kernel,phase,heads,kv_heads,head_dim,") ? kOwnAttention : "";
}

// What a row may say. The bounds are wider than any measurement and keep a slip from filling the memory.
struct Columns {
  std::string_view table;  // the end of its name
  std::vector<const char*> names;
  double least, most;
};
constexpr double kMostLatency = 1e6;  // milliseconds

const std::vector<Columns>& bounds() {
  static const std::vector<Columns> bounds = {
      {"gemm_perf", {"m", "n", "k"}, 1, 1e8},
      {"moe_perf", {"num_tokens"}, 1, 1e8},
      {"moe_perf", {"hidden_size", "inter_size"}, 1, 1e6},
      {"moe_perf", {"topk", "moe_tp_size", "moe_ep_size"}, 1, 1e4},
      {"moe_perf", {"num_experts"}, 1, 1e5},
      {"custom_allreduce_perf", {"num_gpus"}, 1, 1e4},
      {"custom_allreduce_perf", {"message_size"}, 1, 1e13},
      {"nccl_perf", {"num_gpus"}, 1, 1e4},
      {"nccl_perf", {"message_size"}, 1, 1e13},
      {"_mla_perf", {"isl"}, 1, 1e8},
      {"module_perf", {"isl"}, 1, 1e8},
      {"attention_perf", {"isl"}, 0, 1e8},
      {"attention_perf", {"num_key_value_heads", "head_dim"}, 1, 1e4},
      {"attention_perf", {"window_size"}, 0, 1e8},
      {"mla_bmm_perf", {"num_tokens"}, 1, 1e8},
      {"mla_bmm_perf", {"num_heads"}, 1, 1e4},
  };
  return bounds;
}

// What rows of all kinds of attention have.
void check_batch(const kernels::KernelTable& table, std::size_t row) {
  table.check(row, "batch_size", 1, 1e5);
  table.check(row, "step", 0, 1e8);
  table.check(row, "num_heads", 1, 1e4);
}

void check_own_row(const kernels::KernelTable& table, std::size_t row) {
  for (const char* const column : {"heads", "kv_heads", "head_dim"}) table.check(row, column, 1, 1e4);
  table.check(row, "ms", 0, kMostLatency);
  if (table.has("window")) table.check(row, "window", 0, 1e8);
  for (const char* const column : {"prefix", "lengths"}) kernels::lengths_of(table, row, column);
}

}  // namespace

fs::path KernelTableFile::path() const {
  return file.empty() ? kernels::table_file(folder, table) : folder / file;
}

std::string KernelTableFile::source() const {
  return file.empty() ? fmt::format("{} of {}", table, fs::absolute(folder).filename().string()) : file;
}

std::vector<KernelTableFile> kernel_tables(const fs::path& given) {
  std::error_code error;
  const fs::path path = (given / "").parent_path();  // without a slash at its end
  std::vector<KernelTableFile> tables;
  if (!fs::is_directory(path, error)) {
    if (const std::string table = table_of_file(path); !table.empty() && fs::exists(path, error))
      tables.push_back({path.parent_path(), table, ""});
    else if (const std::string own = own_table(path); !own.empty())
      tables.push_back({path.parent_path(), own, path.filename().string()});
    return tables;
  }
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (const std::string table = table_of_file(entry.path()); !table.empty()) names.insert(table);
  if (names.empty())
    throw_user_error("--from {}: is a folder without tables of kernels; {} are known, each .csv or .csv.gz",
                     given.string(), fmt::join(known_tables(), ", "));
  for (const std::string& name : names) tables.push_back({path, name, ""});
  return tables;
}

void check_table(const KernelTableFile& file) {
  const kernels::KernelTable table(file.path());
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!file.file.empty()) {
      check_own_row(table, i);
      continue;
    }
    const std::string& source = table.text(i, "kernel_source");
    table.check(i, "latency_ms", 0, kMostLatency);
    if (file.table.starts_with("dsa_") && source.find("indexer_") == std::string::npos &&
        source.find("dense_mha") == std::string::npos)
      table.fail(i, fmt::format("kernel_source is {}; sglang_dsa_indexer_KERNEL, "
                                "sglang_dsa_skip_indexer_KERNEL or sglang_dsa_dense_mha_KERNEL is needed",
                                in_quotes(source)));
    for (const std::string_view end : {"_mla_perf", "module_perf", "attention_perf"})
      if (file.table.ends_with(end)) check_batch(table, i);
    for (const auto& [end, names, least, most] : bounds())
      if (file.table.ends_with(end))
        for (const char* const name : names) table.check(i, name, least, most);
  }
}

}  // namespace tpsim::calibrate
