// The rows of gemm_perf, moe_perf, custom_allreduce_perf, nccl_perf, mhc_module_perf, gdn_perf and kda_perf
// as calls of rank/cost/op_cost.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rank/cost/delta_kernels.h"
#include "rank/cost/matrix_kernel.h"
#include "rank/cost/op_cost.h"

namespace tpsim::kernels {

struct OperatorRow {
  double m = 0;  // gemm
  std::uint64_t n = 0, k = 0;
  bool hot = false;             // gemm: the benchmark's operands lay in the L2
  rank::RoutedExperts experts;  // moe
  rank::DeltaWork delta;        // gdn and kda
  double bytes = 0;             // collectives: of the message
  std::uint32_t gpus = 0;
  double seconds = 0;
};

// A class of matrix products in gemm_perf or moe_perf.
struct MatrixRows {
  rank::MatrixClass id;
  const char* dtype;
  // The first of them that the table has: what SGLang runs on that GPU.
  std::vector<const char*> sources;
  rank::WeightFormat weight;
};
// nullptr: not a class of matrix products, or one that no table has.
const MatrixRows* matrix_rows_of(const std::string& name);

// All classes that a table has rows of, and the table of each.
const std::vector<std::string>& operator_classes();
const char* table_of(const std::string& name);

// Rows of the class; empty where it was not measured on this GPU.
std::vector<OperatorRow> operator_rows(const std::filesystem::path& folder, const std::string& name,
                                       const proto::HardwareProfile& profile);

// Why no class has the rows of a table that are left.
const char* left_out_of(const std::filesystem::path& folder, const std::string& table);

// Seconds of the row's call.
double price(const rank::OperatorCosts& costs, const std::string& name, const OperatorRow& row);

}  // namespace tpsim::kernels
