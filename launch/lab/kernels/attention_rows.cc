#include "launch/lab/kernels/attention_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "launch/lab/kernels/kernel_table.h"
#include "proto/base/error.h"

namespace tpsim::kernels {
namespace {

using Kernel = AttentionKernel;

// A row of equal sequences.
AttentionRow equal_row(const KernelTable& table, std::size_t i, attention::LayerShape layer,
                       std::uint32_t length, bool decode) {
  AttentionRow row;
  row.layer = layer;
  row.lengths.assign(table.count(i, "batch_size"), length);
  if (!decode) row.prefixes.assign(row.lengths.size(), 0);
  row.seconds = table.number(i, "latency_ms") / 1e3;
  return row;
}

AttentionRow full_row(const KernelTable& table, std::size_t i, bool decode) {
  attention::LayerShape layer;
  layer.num_q_heads = table.count(i, "num_heads");
  layer.num_kv_heads = table.count(i, "num_key_value_heads");
  layer.head_dim = layer.v_head_dim = table.count(i, "head_dim");
  layer.sliding_window = table.count(i, "window_size");
  layer.q_bytes = table.text(i, "attn_dtype") == "fp8" ? 1 : 2;
  return equal_row(table, i, layer, decode ? table.count(i, "step") + 1 : table.count(i, "isl"), decode);
}

std::optional<std::uint32_t> number(std::string_view digits, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || stop != digits.data() + digits.size() || value > most) return std::nullopt;
  return value;
}

Kernel kernel_of(const KernelTable& table, std::size_t i, bool mla) {
  const bool decode = table.text(i, "phase") == "decode";
  if (!mla) return decode ? Kernel::kDecode : Kernel::kExtend;
  return decode                               ? Kernel::kMlaDecode
         : table.text(i, "head_dim") == "576" ? Kernel::kMlaExtend
                                              : Kernel::kMlaPrefill;
}

}  // namespace

const char* class_suffix(Kernel kernel) {
  constexpr const char* kSuffixes[] = {"decode", "extend", "mla_decode", "mla_extend", "mla_prefill"};
  return kSuffixes[static_cast<std::size_t>(kernel)];
}
bool decodes(Kernel kernel) { return kernel == Kernel::kDecode || kernel == Kernel::kMlaDecode; }
bool is_mla(Kernel kernel) { return kernel != Kernel::kDecode && kernel != Kernel::kExtend; }
std::uint32_t page_size_of(Kernel kernel) { return is_mla(kernel) ? 64 : 1; }

NumberFormat kv_format(const std::string& dtype) {
  return dtype == "fp8" ? NumberFormat::kFp8E4M3 : NumberFormat::kBf16;
}

attention::LayerShape mla_layer(Kernel kernel, std::uint32_t heads) {
  attention::LayerShape layer;
  const bool expanded = kernel == Kernel::kMlaPrefill;
  layer.form = expanded ? attention::AttentionForm::kMlaExpanded : attention::AttentionForm::kMlaAbsorbed;
  layer.num_q_heads = heads;
  layer.num_kv_heads = expanded ? heads : 1;
  layer.head_dim = expanded ? 192 : 576;
  layer.v_head_dim = expanded ? 128 : 512;
  return layer;
}

TimedKernel timed_kernel(const std::string& kernel_source, bool mla, bool decode) {
  const bool flash = kernel_source == "flash_attention";
  if (!mla) return {flash ? "flashinfer" : kernel_source, decode ? Kernel::kDecode : Kernel::kExtend};
  const Kernel context = kernel_source == "trtllm_mla" ? Kernel::kMlaPrefill : Kernel::kMlaExtend;
  return {flash ? "fa3" : kernel_source, decode ? Kernel::kMlaDecode : context};
}

std::vector<AttentionRow> attention_rows(const std::filesystem::path& folder,
                                         const std::string& kernel_source, Kernel kernel) {
  const std::string name = std::string(decodes(kernel) ? "generation" : "context") +
                           (is_mla(kernel) ? "_mla_perf" : "_attention_perf");
  const KernelTable table(table_file(folder, name));
  std::vector<AttentionRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "kernel_source") != kernel_source) continue;
    rows.push_back(is_mla(kernel) ? mla_row(table, i, kernel) : full_row(table, i, decodes(kernel)));
    rows.back().layer.kv_format = kv_format(table.text(i, "kv_cache_dtype"));
  }
  return rows;
}

AttentionRow mla_row(const KernelTable& table, std::size_t i, Kernel kernel) {
  return equal_row(table, i, mla_layer(kernel, table.count(i, "num_heads")),
                   static_cast<std::uint32_t>(table.number(i, "isl") + table.number(i, "step")),
                   decodes(kernel));
}

std::vector<AttentionRow> measured_rows(const std::filesystem::path& csv, const std::string& backend,
                                        Kernel kernel) {
  const KernelTable table(csv);
  const bool mla = is_mla(kernel), with_part = table.has("part");
  std::vector<AttentionRow> rows;
  for (std::size_t i = 0; i < table.size(); ++i) {
    // FlashInfer's ragged wrapper, where a prefill is not in pieces; the older file's are all of it.
    const bool ragged_wrapper = !mla && table.text(i, "kernel") == "flashinfer_ragged";
    if ((ragged_wrapper ? "flashinfer" : table.text(i, "kernel")) != backend) continue;
    if (kernel_of(table, i, mla) != kernel) continue;
    AttentionRow row;
    const bool fp8 = table.text(i, "kv_dtype") == "fp8";
    if (mla) {
      row.layer = mla_layer(kernel, table.count(i, "heads"));
      if (fp8) row.layer.q_bytes = 1;
    } else {
      row.layer.num_q_heads = table.count(i, "heads");
      row.layer.num_kv_heads = table.count(i, "kv_heads");
      row.layer.head_dim = row.layer.v_head_dim = table.count(i, "head_dim");
      row.layer.sliding_window = table.count(i, "window");
      row.in_pieces = with_part && !ragged_wrapper;
      row.captured = backend == "flashinfer";
    }
    row.layer.kv_format = kv_format(table.text(i, "kv_dtype"));
    row.held = with_part && table.text(i, "part") == "held";
    row.prefixes = lengths_of(table, i, "prefix");
    row.lengths = lengths_of(table, i, "lengths");
    row.residency = attention::Residency::kCold;
    row.seconds = table.number(i, "ms") / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::uint32_t> lengths_of(const KernelTable& table, std::size_t row, const std::string& column) {
  constexpr std::uint32_t kMostTokens = 100'000'000, kMostSequences = 100'000;
  const std::string_view text = table.text(row, column);
  std::vector<std::uint32_t> lengths;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const std::size_t times = std::min(part.find('x'), part.size());
    const auto count =
        times == part.size() ? std::optional(1U) : number(part.substr(times + 1), kMostSequences);
    const auto length = number(part.substr(0, times), kMostTokens);
    if (!length || !count || lengths.size() + *count > kMostSequences)
      table.fail(row,
                 fmt::format("{} is {}; lengths such as 512;1024x8 are needed", column, in_quotes(text)));
    lengths.insert(lengths.end(), *count, *length);
    at = end + 1;
  }
  return lengths;
}

bool is_left_out(const AttentionRow& row, Kernel kernel) {
  const attention::LayerShape& layer = row.layer;
  if (is_mla(kernel)) {
    std::uint64_t hash = layer.num_q_heads;
    for (const std::uint64_t value :
         {std::uint64_t{row.lengths.size()}, std::uint64_t{row.lengths.front()}}) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash % 5 == 0;
  }
  std::uint64_t hash = 1469598103934665603U;
  for (const std::uint64_t part : std::initializer_list<std::uint64_t>{
           layer.num_q_heads, layer.num_kv_heads, layer.head_dim, layer.sliding_window, layer.q_bytes,
           static_cast<std::uint64_t>(layer.kv_format), row.lengths.size(), row.lengths[0]}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return (hash >> 8) % 4 == 0;
}

double price(attention::PlannedBackend& backend, const attention::PlanCost& cost, const AttentionRow& row,
             bool decode) {
  double seconds = 0;
  with_metadata(row, decode, [&](const attention::ForwardMetadata& metadata) {
    backend.init_forward_metadata(metadata);
    seconds = decode ? backend.decode_cost(cost, backend.decode_plan(row.layer), row.layer).seconds
                     : backend.extend_cost(cost, backend.extend_plan(row.layer), row.layer).seconds;
  });
  return seconds;
}

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
