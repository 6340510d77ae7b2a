#include "launch/lab/kernels/operator_rows.h"

#include <algorithm>

#include "launch/lab/kernels/kernel_table.h"

namespace tpsim::kernels {
namespace {

const std::vector<MatrixRows>& matrix_rows() {
  using rank::MatrixClass;
  using Kind = rank::WeightFormat::Kind;
  const rank::WeightFormat channel{.kind = Kind::kFp8, .block_n = 1};
  const rank::WeightFormat block{.kind = Kind::kFp8, .block_n = 128, .block_k = 128};
  const rank::WeightFormat nvfp4{.kind = Kind::kNvfp4, .block_n = 1, .block_k = 16};
  const rank::WeightFormat mxfp4{.kind = Kind::kMxfp4, .block_n = 1, .block_k = 32};
  const rank::WeightFormat int4{.kind = Kind::kInt4, .block_n = 1, .block_k = 128};
  constexpr const char* kTriton = "sglang_fused_moe_triton";
  constexpr const char* kTrtllm = "sglang_flashinfer_trtllm_moe";
  constexpr const char* kMarlin = "sglang_marlin_moe";
  static const std::vector<MatrixRows> rows = {
      {MatrixClass::kGemm, "bfloat16", {"sglang_torch_linear", "sglang"}, {}},
      {MatrixClass::kGemmFp8, "fp8", {"sglang_sgl_kernel_fp8_scaled_mm"}, channel},
      {MatrixClass::kGemmFp8Block, "fp8_block", {"sglang_deepgemm_gemm_nt_f8f8bf16"}, block},
      {MatrixClass::kGemmNvfp4,
       "nvfp4",
       {"sglang_flashinfer_cutedsl_nvfp4", "sglang_flashinfer_cutlass_nvfp4"},
       nvfp4},
      {MatrixClass::kMoe, "bfloat16", {kTriton}, {}},
      {MatrixClass::kMoeDefault, "bfloat16", {kTriton}, {}},
      {MatrixClass::kMoeDefaultFew, "bfloat16", {kTriton}, {}},
      {MatrixClass::kMoeTrtllm, "bfloat16", {kTrtllm}, {}},
      {MatrixClass::kMoeFp8, "fp8_block", {kTrtllm, kTriton}, block},
      {MatrixClass::kMoeInt4, "int4_wo", {kMarlin, kTrtllm}, int4},
      {MatrixClass::kMoeMxfp4, "w4a16_mxfp4", {kTriton, kMarlin, kTrtllm}, mxfp4},
      {MatrixClass::kMoeMxfp4Fp8, "w4a8_mxfp4_mxfp8", {"sglang_mxfp4_flashinfer_trtllm_moe", kTrtllm}, mxfp4},
      {MatrixClass::kMoeNvfp4, "nvfp4", {kTrtllm, "sglang_flashinfer_cutlass_moe"}, nvfp4},
  };
  return rows;
}

// The classes of 16-bit experts in Triton, which one kernel_source stands for.
bool is_triton(rank::MatrixClass id) {
  return id == rank::MatrixClass::kMoe || id == rank::MatrixClass::kMoeDefault ||
         id == rank::MatrixClass::kMoeDefaultFew;
}

rank::MatrixClass triton_kernel(const proto::HardwareProfile& profile, const rank::RoutedExperts& experts) {
  const auto width = static_cast<std::uint32_t>(experts.width);
  return rank::expert_kernel({}, profile, experts.experts, width, experts.tokens, false);
}

// Whether the weights that these tokens meet are too many to stay in the L2 from one timed call to the next.
// A served model's layers follow each other, and find none of theirs there; what was timed with them there is
// up to three times as fast.
bool streams_weights(const rank::RoutedExperts& experts, const rank::WeightFormat& weight, double l2) {
  const double hit = std::min<double>(experts.experts, experts.tokens * experts.top_k / experts.ep_size);
  return hit * static_cast<double>(weight.bytes(3 * experts.width, experts.hidden)) > l2;
}

// Whether gemm_perf's operands of this many bytes of weights lie in the L2 when the product begins. The
// benchmark goes round some copies of them: on GPUs with a large L2 (L40S, RTX PRO 6000) rows of weights up
// to a fifth of it and a little more are up to 2.7 times as fast as memory allows, in 16 bit and in 8, and
// none is beyond.
bool lies_in_l2(double weight_bytes, double l2) {
  constexpr double kCopies = 5.4;
  return kCopies * weight_bytes <= l2;
}

// Nemotron 3's experts have no gate projection: two products where the table's columns say three.
bool without_gate(const rank::RoutedExperts& experts) {
  return experts.top_k == 22 || experts.hidden == 2688;
}

// DeepSeek-V3's router looks for its 8 experts in 4 of 8 groups. Where all logits are alike, as in these
// rows, these are the first 4: of 256 experts 128 are chosen, and two ranks of experts take as long as one
// (1.00 times in the median on every GPU, where other models' take half of it).
bool chooses_in_half(const rank::RoutedExperts& experts) {
  return experts.hidden == 7168 && experts.top_k == 8 && experts.experts * experts.ep_size == 256;
}

std::vector<OperatorRow> read_matrix_rows(const KernelTable& table, const MatrixRows& wanted,
                                          const proto::HardwareProfile& profile) {
  std::vector<OperatorRow> rows;
  const bool moe = rank::matrix_class(wanted.id).moe();
  for (const char* source : wanted.sources) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table.text(i, moe ? "moe_dtype" : "gemm_dtype") != wanted.dtype) continue;
      if (table.text(i, "kernel_source") != source) continue;
      OperatorRow row;
      row.seconds = table.number(i, "latency_ms") / 1e3;
      const auto number = [&](const char* column) { return table.count(i, column); };
      if (!moe) {
        row.m = table.number(i, "m");
        row.n = number("n");
        row.k = number("k");
        row.hot = lies_in_l2(static_cast<double>(wanted.weight.bytes(row.n, row.k)), profile.l2_bytes());
      } else {
        // The other distributions are draws whose experts the table does not name.
        if (table.text(i, "distribution") != "balanced") continue;
        row.experts.tokens = table.number(i, "num_tokens");
        row.experts.hidden = number("hidden_size");
        row.experts.width = number("inter_size") / number("moe_tp_size");
        row.experts.top_k = number("topk");
        row.experts.ep_size = number("moe_ep_size");
        row.experts.experts = number("num_experts") / row.experts.ep_size;
        row.experts.in_turn = true;
        // Of release 0.5.10 (the A100's), 1 to 8 groups of experts take the same time: not what is priced.
        // More groups than 8 leave too few experts to each to be like any deployment.
        constexpr std::uint32_t kMostGroups = 8;
        const bool old = table.text(i, "version") == "0.5.10";
        if (row.experts.ep_size > (old ? 1 : kMostGroups)) continue;
        if (!old && chooses_in_half(row.experts)) {
          row.experts.ep_size = std::max(1U, row.experts.ep_size / 2);
          row.experts.experts = 128 / row.experts.ep_size;
        }
        if (without_gate(row.experts) || !streams_weights(row.experts, wanted.weight, profile.l2_bytes()))
          continue;
        if (is_triton(wanted.id) && wanted.id != triton_kernel(profile, row.experts)) continue;
      }
      rows.push_back(row);
    }
    if (!rows.empty()) break;
  }
  return rows;
}

// Both connections of one layer are a row. A table with torch's kernels is of a GPU that lacked SGLang's.
std::vector<OperatorRow> hyper_connection_rows(const std::filesystem::path& csv, const std::string& op) {
  std::vector<OperatorRow> rows;
  if (!std::filesystem::exists(csv)) return rows;
  const KernelTable table(csv);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source").find("torch") != std::string::npos) return {};
    if (table.text(i, "op_name") != op) continue;
    OperatorRow row;
    row.m = table.number(i, "num_tokens");
    row.n = table.count(i, "hidden_size");
    row.k = table.count(i, "hc_mult");
    row.seconds = table.number(i, "latency_ms") / 1e3 / table.number(i, "num_sites");
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

const MatrixRows* matrix_rows_of(const std::string& name) {
  for (const MatrixRows& rows : matrix_rows()) {
    if (rank::matrix_class(rows.id).name == name) return &rows;
  }
  return nullptr;
}

const std::vector<std::string>& operator_classes() {
  static const std::vector<std::string> classes = [] {
    std::vector<std::string> names;
    for (const MatrixRows& rows : matrix_rows()) names.emplace_back(rank::matrix_class(rows.id).name);
    names.insert(names.end(), {"all_reduce.custom", "all_reduce.nccl", "all_gather", "reduce_scatter",
                               "all_to_all", "mhc.pre", "mhc.post"});
    return names;
  }();
  return classes;
}

const char* table_of(const std::string& name) {
  if (const MatrixRows* matrix = matrix_rows_of(name))
    return rank::matrix_class(matrix->id).moe() ? "moe_perf" : "gemm_perf";
  if (name.starts_with("mhc.")) return "mhc_module_perf";
  return name == "all_reduce.custom" ? "custom_allreduce_perf" : "nccl_perf";
}

std::vector<OperatorRow> operator_rows(const std::filesystem::path& folder, const std::string& name,
                                       const proto::HardwareProfile& profile) {
  if (name.starts_with("mhc."))
    return hyper_connection_rows(table_file(folder, table_of(name)), name.substr(4));
  const KernelTable table(table_file(folder, table_of(name)));
  if (const MatrixRows* wanted = matrix_rows_of(name)) return read_matrix_rows(table, *wanted, profile);
  const bool custom = name == "all_reduce.custom";
  const std::string op = name == "all_reduce.nccl" ? "all_reduce" : name == "all_to_all" ? "alltoall" : name;
  std::vector<OperatorRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (custom ? table.text(i, "kernel_source") != "SGLang_CustomAllReduce_graph"
               : table.text(i, "op_name") != op || table.text(i, "nccl_dtype") != "half")
      continue;
    OperatorRow row;
    row.seconds = table.number(i, "latency_ms") / 1e3;
    row.gpus = table.count(i, "num_gpus");
    // The column is in elements; an all-gather's is what each GPU ends up with, the others' what each begins
    // with.
    row.bytes = table.number(i, "message_size") * 2;
    // Beyond the limit, and on more than two GPUs without NVLink, SGLang falls back to NCCL.
    if (custom &&
        (row.bytes > rank::OperatorCosts::kCustomAllReduceLimit || (!profile.nvlink() && row.gpus != 2)))
      continue;
    rows.push_back(row);
  }
  return rows;
}

double price(const rank::OperatorCosts& costs, const std::string& name, const OperatorRow& row) {
  if (const MatrixRows* matrix = matrix_rows_of(name)) {
    return rank::matrix_class(matrix->id).moe()
               ? costs.moe(matrix->id, row.experts, matrix->weight).seconds
               : costs.gemm(matrix->id, row.m, row.n, row.k, matrix->weight, row.hot).seconds;
  }
  if (name.starts_with("mhc."))
    return costs
        .hyper_connection(name == "mhc.pre", row.m, static_cast<double>(row.n), static_cast<double>(row.k))
        .seconds;
  if (name == "all_reduce.custom") return costs.custom_all_reduce(row.bytes, row.gpus).seconds;
  if (name == "all_reduce.nccl") return costs.nccl_all_reduce(row.bytes, row.gpus).seconds;
  if (name == "reduce_scatter") return costs.reduce_scatter(row.bytes, row.gpus).seconds;
  if (name == "all_to_all") return costs.all_to_all(row.bytes, row.gpus).seconds;
  return costs.all_gather(row.bytes / row.gpus, row.gpus).seconds;
}

}  // namespace tpsim::kernels
