// The rows of gemm_perf, moe_perf, custom_allreduce_perf and nccl_perf as calls of rank/model/op_cost.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rank/model/op_cost.h"
#include "tests/calibration/kernel_table.h"

namespace tpsim::calibration {

struct OperatorRow {
  double m = 0, n = 0, k = 0;                                        // gemm
  double tokens = 0, hidden = 0, inter = 0, experts = 0, top_k = 0;  // moe
  double bytes = 0;                                                  // collectives: of the message
  std::uint32_t gpus = 0;
  double seconds = 0;
};

inline const std::vector<std::string>& operator_classes() {
  static const std::vector<std::string> classes = {"gemm", "moe", "all_reduce.custom", "all_reduce.nccl",
                                                   "all_gather"};
  return classes;
}

// bf16 rows of the class. NCCL's message_size is in elements; an all-gather's is what each GPU ends up with.
inline std::vector<OperatorRow> operator_rows(const std::filesystem::path& folder, const std::string& name,
                                              bool nvlink) {
  std::vector<OperatorRow> rows;
  const bool gemm = name == "gemm";
  const bool moe = name == "moe";
  const bool custom = name == "all_reduce.custom";
  const KernelTable table(folder / (gemm     ? "gemm_perf.csv.gz"
                                    : moe    ? "moe_perf.csv.gz"
                                    : custom ? "custom_allreduce_perf.csv.gz"
                                             : "nccl_perf.csv.gz"));
  for (std::size_t i = 0; i < table.size(); ++i) {
    OperatorRow row;
    row.seconds = table.number(i, "latency_ms") / 1e3;
    if (gemm) {
      if (table.text(i, "gemm_dtype") != "bfloat16") continue;
      row.m = table.number(i, "m");
      row.n = table.number(i, "n");
      row.k = table.number(i, "k");
    } else if (moe) {
      if (table.text(i, "moe_dtype") != "bfloat16" || table.text(i, "distribution") != "balanced" ||
          table.text(i, "kernel_source") != "sglang_fused_moe_triton") {
        continue;
      }
      const double ep = table.number(i, "moe_ep_size");
      row.tokens = table.number(i, "num_tokens");
      row.hidden = table.number(i, "hidden_size");
      row.inter = table.number(i, "inter_size") / table.number(i, "moe_tp_size");
      row.top_k = table.number(i, "topk");
      row.experts = table.number(i, "num_experts");
      if (ep != 1) continue;
    } else if (custom) {
      if (table.text(i, "kernel_source") != "SGLang_CustomAllReduce_graph") continue;
      row.gpus = static_cast<std::uint32_t>(table.number(i, "num_gpus"));
      row.bytes = table.number(i, "message_size") * 2;
      // Beyond the limit, and on more than two GPUs without NVLink, SGLang falls back to NCCL.
      if (row.bytes > rank::OperatorCosts::kCustomAllReduceLimit || (!nvlink && row.gpus != 2)) continue;
    } else {
      const std::string op = name == "all_gather" ? "all_gather" : "all_reduce";
      if (table.text(i, "op_name") != op || table.text(i, "nccl_dtype") != "half") continue;
      row.gpus = static_cast<std::uint32_t>(table.number(i, "num_gpus"));
      row.bytes = table.number(i, "message_size") * 2;
    }
    rows.push_back(row);
  }
  return rows;
}

inline double price(const rank::OperatorCosts& costs, const std::string& name, const OperatorRow& row) {
  if (name == "gemm") return costs.gemm(row.m, row.n, row.k, 2).seconds;
  if (name == "moe") return costs.moe(row.tokens, row.hidden, row.inter, row.experts, row.top_k, 2).seconds;
  if (name == "all_reduce.custom") return costs.custom_all_reduce(row.bytes, row.gpus).seconds;
  if (name == "all_reduce.nccl") return costs.nccl_all_reduce(row.bytes, row.gpus).seconds;
  return costs.all_gather(row.bytes / row.gpus, row.gpus).seconds;
}

}  // namespace tpsim::calibration
