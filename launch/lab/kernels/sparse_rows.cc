#include "launch/lab/kernels/sparse_rows.h"

#include <utility>

#include "launch/lab/kernels/kernel_table.h"

namespace tpsim::kernels {
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash ^ hash >> 29;
}

std::vector<SparseRow> sparse_rows(const std::filesystem::path& folder, bool decode) {
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
    row.heads = table.count(i, "num_heads");
    row.batch = table.count(i, "batch_size");
    row.q_len = table.count(i, "isl");
    row.prefix = table.count(i, "step");
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

}  // namespace tpsim::kernels
