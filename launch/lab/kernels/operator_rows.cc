#include "launch/lab/kernels/operator_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

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

struct DeltaRows {
  rank::DeltaKernel kernel;
  const char* table;
  std::vector<const char*> sources;
};
const std::vector<DeltaRows>& delta_classes() {
  using enum rank::DeltaKernel;
  static const std::vector<DeltaRows> classes = {
      {kGdnConvExtend, "gdn_perf", {"causal_conv1d_fn"}},
      {kGdnConvDecode, "gdn_perf", {"causal_conv1d_update"}},
      {kGdnExtend, "gdn_perf", {"chunk_gated_delta_rule"}},
      {kGdnDecode,
       "gdn_perf",
       {"fused_recurrent_gated_delta_rule_packed_decode", "fused_recurrent_gated_delta_rule"}},
      {kKdaConvExtend, "kda_perf", {"causal_conv1d_fn_qkv3"}},
      {kKdaConvDecode, "kda_perf", {"causal_conv1d_update"}},
      {kKdaExtend, "kda_perf", {"chunk_kda"}},
      {kKdaDecode, "kda_perf", {"fused_recurrent_kda_packed_decode"}},
      {kVerify, "kda_perf", {"fused_sigmoid_gating_delta_rule_update"}},
  };
  return classes;
}
const DeltaRows* delta_rows_of(const std::string& name) {
  for (const DeltaRows& of : delta_classes())
    if (rank::class_of(of.kernel) == name) return &of;
  return nullptr;
}

using DeltaShape = std::array<std::string, 4>;
DeltaShape delta_shape(const KernelTable& table, std::size_t i) {
  return {table.text(i, "batch_size"), table.text(i, "seq_len"), table.text(i, "num_k_heads"),
          table.text(i, "num_v_heads")};
}

std::vector<std::size_t> rows_of(const KernelTable& table, const DeltaRows& wanted) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (std::ranges::count(wanted.sources, table.text(i, "kernel_source")) == 0) continue;
    // Release 0.5.10 (the A100's) prefilled with a kernel that gives each channel of each request a block,
    // where 0.5.12 and newer have one of Triton's.
    if (wanted.kernel == rank::DeltaKernel::kGdnConvExtend && table.text(i, "version") == "0.5.10") continue;
    rows.push_back(i);
  }
  return rows;
}

// An H200 is an H100 with faster memory. Its gdn_perf was timed beside other work: half of the shapes that
// take more than half a millisecond do so twice as long as on an H100 and more, and rows of one shape differ
// by up to three times. Only those say something that take it less, but for the twentieth that short
// calls differ by, nor a tenth longer than another row of their shape.
std::vector<std::size_t> undisturbed(std::vector<std::size_t> rows, const KernelTable& table,
                                     const DeltaRows& wanted, const std::filesystem::path& folder) {
  constexpr double kShort = 0.1;  // milliseconds
  constexpr double kShortMost = 1.05, kMost = 0.95, kOwnMost = 1.1;
  const std::filesystem::path other = table_file(folder.parent_path() / "h100_sxm", wanted.table);
  if (folder.filename() != "h200_sxm" || std::string_view(wanted.table) != "gdn_perf" ||
      !std::filesystem::exists(other))
    return rows;
  const auto least_of = [](const KernelTable& of, const std::vector<std::size_t>& members) {
    std::map<DeltaShape, double> least;
    for (const std::size_t i : members) {
      const double latency = of.number(i, "latency_ms");
      const auto [at, fresh] = least.emplace(delta_shape(of, i), latency);
      if (!fresh) at->second = std::min(at->second, latency);
    }
    return least;
  };
  const KernelTable beside(other);
  const std::map<DeltaShape, double> slower = least_of(beside, rows_of(beside, wanted));
  const std::map<DeltaShape, double> own = least_of(table, rows);
  std::erase_if(rows, [&](std::size_t i) {
    const DeltaShape shape = delta_shape(table, i);
    const auto at = slower.find(shape);
    const double latency = table.number(i, "latency_ms");
    return at == slower.end() || latency > (latency < kShort ? kShortMost : kMost) * at->second ||
           latency > kOwnMost * own.at(shape);
  });
  return rows;
}

std::vector<OperatorRow> read_delta_rows(const std::filesystem::path& folder, const DeltaRows& wanted) {
  std::vector<OperatorRow> rows;
  const std::filesystem::path csv = table_file(folder, wanted.table);
  if (!std::filesystem::exists(csv)) return rows;
  const KernelTable table(csv);
  for (const std::size_t i : undisturbed(rows_of(table, wanted), table, wanted, folder)) {
    const double length = table.number(i, "seq_len");
    OperatorRow row;
    rank::DeltaWork& work = row.delta;
    work.requests = table.number(i, "batch_size");
    work.tokens = work.requests * length;
    work.longest = std::ceil(length / rank::kDeltaChunk);
    work.chunks = work.requests * work.longest;
    work.key_heads = table.number(i, "num_k_heads");
    work.heads = table.number(i, "num_v_heads");
    work.k_dim = table.number(i, "head_k_dim");
    work.v_dim = table.number(i, "head_v_dim");
    work.channels = 2 * work.key_heads * work.k_dim + work.heads * work.v_dim;
    work.conv_kernel = table.number(i, "d_conv");
    row.seconds = table.number(i, "latency_ms") / 1e3;
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
    names.insert(names.end(), rank::kDeltaClasses.begin(), rank::kDeltaClasses.end());
    return names;
  }();
  return classes;
}

const char* table_of(const std::string& name) {
  if (const MatrixRows* matrix = matrix_rows_of(name))
    return rank::matrix_class(matrix->id).moe() ? "moe_perf" : "gemm_perf";
  if (name.starts_with("mhc.")) return "mhc_module_perf";
  if (const DeltaRows* delta = delta_rows_of(name)) return delta->table;
  return name == "all_reduce.custom" ? "custom_allreduce_perf" : "nccl_perf";
}

std::vector<OperatorRow> operator_rows(const std::filesystem::path& folder, const std::string& name,
                                       const proto::HardwareProfile& profile) {
  if (name.starts_with("mhc."))
    return hyper_connection_rows(table_file(folder, table_of(name)), name.substr(4));
  if (const DeltaRows* delta = delta_rows_of(name)) return read_delta_rows(folder, *delta);
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

const char* left_out_of(const std::filesystem::path& folder, const std::string& table) {
  if (table == "kda_perf")
    return "Kimi K3's kernels of its own, for whole decode steps; Kimi Linear runs the others";
  if (table != "gdn_perf") return "";
  return folder.filename() == "h200_sxm"
             ? "longer than on an H100 with its slower memory: timed beside other work, or a shape that the "
               "H100's table lacks"
             : "SGLang 0.5.10's convolution of prefills, in whose place 0.5.12 and newer run Triton's";
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
  if (const DeltaRows* delta = delta_rows_of(name))
    return costs.delta().cost(delta->kernel, row.delta, true).seconds;
  if (name == "all_reduce.custom") return costs.custom_all_reduce(row.bytes, row.gpus).seconds;
  if (name == "all_reduce.nccl") return costs.nccl_all_reduce(row.bytes, row.gpus).seconds;
  if (name == "reduce_scatter") return costs.reduce_scatter(row.bytes, row.gpus).seconds;
  if (name == "all_to_all") return costs.all_to_all(row.bytes, row.gpus).seconds;
  return costs.all_gather(row.bytes / row.gpus, row.gpus).seconds;
}

}  // namespace tpsim::kernels
