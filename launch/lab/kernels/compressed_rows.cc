#include "launch/lab/kernels/compressed_rows.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "attention/block_sparse.h"
#include "attention/compressed_load.h"
#include "launch/lab/kernels/attention_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "rank/config/weight_format.h"

namespace tpsim::kernels {
namespace {

constexpr std::uint32_t kHeadsOfGroup = 8, kOutputRank = 1024;  // both models'

// What scores that are all alike add to picking the best, by model, batch and new tokens, along the tokens
// stored before: of the table's measured ones the nearest that is not longer.
class FlatScores {
 public:
  FlatScores(const std::filesystem::path& folder, bool decode) {
    const std::filesystem::path path = table_file(folder, "dsv4_csa_topk_calib_perf");
    if (!std::filesystem::exists(path)) return;
    const KernelTable table(path);
    const std::string version = decode ? "v2_" : "v1_";
    std::map<Key, std::map<std::uint32_t, double>> flat, real;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::string& mode = table.text(i, "score_mode");
      if (!mode.starts_with(version)) continue;
      auto& of = mode.ends_with("flat") ? flat : real;
      of[key(table, i)][table.count(i, "step")] = table.number(i, "latency_ms") / 1e3;
    }
    for (const auto& [shape, steps] : flat)
      for (const auto& [step, seconds] : steps)
        if (const auto found = real[shape].find(step); found != real[shape].end())
          added_[shape][step] = std::max(0.0, seconds - found->second);
  }

  double operator()(const KernelTable& table, std::size_t row) const {
    const auto shape = added_.find(key(table, row));
    if (shape == added_.end()) return 0;
    const auto above = shape->second.upper_bound(table.count(row, "step"));
    return above == shape->second.begin() ? 0 : std::prev(above)->second;
  }

 private:
  using Key = std::array<std::uint32_t, 3>;  // entries that are picked, batch, new tokens
  static Key key(const KernelTable& table, std::size_t row) {
    const bool pro = table.text(row, "model").find("Pro") != std::string::npos;
    return {pro, table.count(row, "batch_size"), table.count(row, "isl")};
  }
  std::map<Key, std::map<std::uint32_t, double>> added_;
};

}  // namespace

bool is_compressed_table(const std::string& table) {
  const bool kind = table.starts_with("dsv4_csa_") || table.starts_with("dsv4_hca_");
  return kind && (table.ends_with("context_module_perf") || table.ends_with("generation_module_perf"));
}

std::vector<CompressedRow> compressed_rows(const std::filesystem::path& folder, const std::string& name,
                                           const proto::HardwareProfile& profile, std::size_t most) {
  const KernelTable table(table_file(folder, name));
  const bool decode = name.find("generation") != std::string::npos;
  const bool csa = name.starts_with("dsv4_csa_");
  const FlatScores flat(folder, decode);
  std::vector<CompressedRow> rows;
  const std::size_t every = std::max<std::size_t>(1, table.size() / most);
  for (std::size_t i = 0; i < table.size(); i += every) {
    const bool pro = table.text(i, "model").find("Pro") != std::string::npos;
    CompressedRow row;
    row.decode = decode;
    row.hidden = pro ? 7168 : 4096;
    row.q_lora = pro ? 1536 : 1024;
    row.fp8_gemm = table.text(i, "gemm_type") == "fp8_block";
    row.batch = table.count(i, "batch_size");
    row.q_len = decode ? 1 : table.count(i, "isl");
    row.prefix = table.count(i, "step");
    row.seconds = table.number(i, "latency_ms") / 1e3 - (csa ? flat(table, i) : 0);
    row.layer = {.form = attention::AttentionForm::kCompressed,
                 .num_q_heads = table.count(i, "num_heads"),
                 .num_kv_heads = 1,
                 .head_dim = 512,
                 .v_head_dim = 512,
                 .sliding_window = 128,
                 .compress_ratio = csa ? 4U : 128U,
                 .top_k = csa ? (pro ? 1024U : 512U) : 0U,
                 .index_heads = csa ? 64U : 0U,
                 .index_head_dim = 128,
                 .kv_format = NumberFormat::kFp8E4M3,
                 .token_bytes = 512 + 64 + 8};
    std::string shape;
    for (const char* const column : {"model", "num_heads", "tp_size", "batch_size", "isl", "step"})
      shape += table.text(i, column) + ",";
    row.held_out = hash_of(shape) % 5 == 0;
    for (std::uint32_t request = 0; request < row.batch; ++request)
      row.plan.items.push_back({request, row.prefix, row.q_len});
    row.load = attention::compressed_load(row.plan.items, row.layer);
    attention::plan_compressed(row.layer, row.load, decode, profile.multiprocessors(), row.plan);
    row.plan.items.clear();  // the price needs their sums only
    row.plan.items.shrink_to_fit();
    if (row.seconds > 0) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<ModuleProduct> products_of(const CompressedRow& row) {
  using rank::WeightFormat;
  constexpr WeightFormat kPlain;
  constexpr WeightFormat kBlocks = {WeightFormat::Kind::kFp8, 128, 128, false, rank::ActivationFormat::kFp8};
  const WeightFormat& format = row.fp8_gemm ? kBlocks : kPlain;
  const auto& layer = row.layer;
  const std::uint64_t dim = layer.head_dim, groups = std::max(1U, layer.num_q_heads / kHeadsOfGroup);
  const bool csa = layer.index_heads > 0;
  std::vector<ModuleProduct> list = {{row.q_lora + dim, row.hidden, format},
                                     {layer.num_q_heads * dim, row.q_lora, format},
                                     {groups * kOutputRank, kHeadsOfGroup * dim, format},
                                     {row.hidden, groups * kOutputRank, format},
                                     {(csa ? 4 : 2) * dim, row.hidden, kPlain}};
  if (csa)
    list.insert(list.end(), {{std::uint64_t{layer.index_heads} * layer.index_head_dim, row.q_lora, format},
                             {layer.index_heads, row.hidden, kPlain},
                             {std::uint64_t{4} * layer.index_head_dim, row.hidden, kPlain}});
  return list;
}

double products(const rank::OperatorCosts& costs, const CompressedRow& row) {
  if (row.of_blocks()) return row.apart;
  double seconds = 0;
  for (const ModuleProduct& of : products_of(row))
    seconds += costs.compressed_product(row.load.queries, of.n, of.k, of.format).seconds;
  return seconds;
}

double attend_price(const attention::SparseCost& attend, const CompressedRow& row) {
  if (row.of_blocks())
    return attention::block_sparse_cost(attend, row.load, row.layer, row.decode, row.multiprocessors)
        .attend.seconds;
  return attend.attend(row.plan, row.load, row.layer, row.layer.token_bytes).seconds;
}

double index_price(const attention::SparseCost& attend, const CompressedRow& row) {
  if (!row.has_indexer()) return 0;
  const attention::IndexShape shape =
      row.of_blocks() ? attention::index_shape(row.layer)
                      : attention::IndexShape{row.layer.index_heads, row.layer.index_head_dim};
  return attend.index(row.load, shape, false).seconds;
}

double attention_price(const attention::SparseCost& attend, const CompressedRow& row) {
  return attend_price(attend, row) + index_price(attend, row);
}

attention::PlanFeatures attend_features(const attention::SparseCost& attend, const CompressedRow& row) {
  if (row.of_blocks())
    return attend.attend_features(attention::of_all_kv_heads(row.load, row.layer),
                                  attention::of_one_kv_head(row.layer),
                                  2 * row.layer.head_dim * row.layer.kv_bytes());
  return attend.attend_features(row.load, row.layer, row.layer.token_bytes);
}

attention::PlanFeatures index_features(const attention::SparseCost& attend, const CompressedRow& row) {
  return attend.index_features(row.load, {row.layer.index_heads, row.layer.index_head_dim});
}

bool is_block_sparse_table(const std::string& table) { return table.starts_with("msa_"); }

BlockSparseRows block_sparse_rows(const std::filesystem::path& folder, const std::string& name,
                                  const proto::HardwareProfile& profile, std::size_t most) {
  constexpr std::uint64_t kHidden = 6144, kDim = 128;
  constexpr std::uint32_t kKvHeads = 4, kBlock = 128, kBlocks = 16;
  constexpr double kWaits = 1.5;  // times the quickest module that was launched so
  const KernelTable table(table_file(folder, name));
  const bool decode = name.find("generation") != std::string::npos;
  const rank::OperatorCosts costs(profile);
  // Prefills are; so are decodes of more requests than graphs were captured for, which select in another way.
  const auto eager = [&](std::size_t i) {
    return !decode || table.text(i, "kernel_source").ends_with("radix");
  };
  double quickest = 1e9;
  for (std::size_t i = 0; i < table.size(); ++i)
    if (const double ms = table.number(i, "latency_ms"); ms > 0 && eager(i))
      quickest = std::min(quickest, ms / 1e3);
  BlockSparseRows out;
  const std::size_t every = std::max<std::size_t>(1, table.size() / most);
  for (std::size_t i = 0; i < table.size(); i += every) {
    CompressedRow row;
    row.decode = decode;
    row.hidden = kHidden;
    row.batch = table.count(i, "batch_size");
    row.q_len = decode ? 1 : table.count(i, "isl");
    row.prefix = table.count(i, "step");
    row.seconds = table.number(i, "latency_ms") / 1e3;
    row.multiprocessors = profile.multiprocessors();
    const std::uint32_t kv_heads = std::max(1U, kKvHeads / table.count(i, "tp_size"));
    row.layer = {.form = attention::AttentionForm::kBlockSparse,
                 .num_q_heads = table.count(i, "num_heads"),
                 .num_kv_heads = kv_heads,
                 .head_dim = kDim,
                 .v_head_dim = kDim,
                 .top_k = kBlock * kBlocks,
                 .select_block = kBlock,
                 .index_heads = kv_heads,
                 .index_head_dim = kDim,
                 .kv_format = kv_format(table.text(i, "kv_cache_dtype"))};
    std::string shape;
    for (const char* const column : {"num_heads", "kv_cache_dtype", "batch_size", "isl", "step"})
      shape += table.text(i, column) + ",";
    row.held_out = hash_of(shape) % 5 == 0;
    std::vector<attention::SparseItem> items;
    for (std::uint32_t request = 0; request < row.batch; ++request)
      items.push_back({request, row.prefix, row.q_len});
    row.load = attention::block_sparse_load(items, row.layer);
    // As a pass prices them (ModeledForward::price_dense): two products, rotation, norms, the pool.
    const double m = row.load.queries, q = double(row.layer.num_q_heads) * kDim, kv = double(kv_heads) * kDim;
    const std::uint64_t projected = row.layer.num_q_heads * kDim;
    row.apart = costs.gemm(m, projected + (3 * kv_heads + 1) * kDim, kHidden, {}).seconds +
                costs.gemm(m, kHidden, projected, {}).seconds +
                2 * costs.elementwise(m * 2 * (q + kv) * rank::kElement).seconds +
                costs.elementwise(m * 4 * kv * rank::kElement).seconds;
    if (row.seconds <= 0) continue;
    if (eager(i) && row.seconds < kWaits * quickest)
      ++out.waited;
    else
      out.rows.push_back(std::move(row));
  }
  return out;
}

}  // namespace tpsim::kernels
