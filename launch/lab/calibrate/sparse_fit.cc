#include "launch/lab/calibrate/sparse_fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "attention/sparse_cost.h"
#include "launch/lab/calibrate/coordinate_search.h"
#include "launch/lab/calibrate/surface_fit.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

using kernels::kIndexDim;
using kernels::kLatent;
using kernels::kRope;
using kernels::kTopK;
using kernels::SparseModel;
using kernels::SparseRow;

constexpr const char* kIndexer = "indexer";

struct Product {
  double m, n, k, times;
};

// The matrix products of one attention module that attends absorbed; `stored` tokens are expanded where
// dense.
std::vector<Product> products(const SparseRow& row, bool dense) {
  const double m = double(row.batch) * row.q_len;
  const double stored = double(row.batch) * (row.q_len + row.prefix);
  const SparseModel& of = row.model;
  const double h = row.heads;
  std::vector<Product> list = {{m, of.q_lora + kLatent + kRope, of.hidden, 1},
                               {m, h * (of.nope + kRope), of.q_lora, 1},
                               {m, of.hidden, h * of.v, 1}};
  if (dense) {
    list.push_back({stored, h * (of.nope + of.v), kLatent, 1});
  } else {
    list.push_back({m, kLatent, of.nope, h});
    list.push_back({m, of.v, kLatent, h});
  }
  if (row.indexer) {
    list.push_back({m, kIndexDim + (dense ? 0 : of.index_heads), of.hidden, 1});
    if (!dense) list.push_back({m, of.index_heads * kIndexDim, of.q_lora, 1});
  }
  return list;
}

// What prices the kernels and the indexer: their coefficients, and entries whose corrections multiply them.
struct Prices {
  std::map<std::string, PlanCoefficients> kernels;
  IndexCoefficients index;
  std::map<std::string, proto::OperatorEfficiency> corrected;  // by kernel, and kIndexer

  Corrections corrections_of(const std::string& name) const {
    const auto found = corrected.find(name);
    return {found == corrected.end() ? nullptr : &found->second, kPlanFeatures};
  }
};

// Seconds of one module's operators.
struct Parts {
  double around = 0, attend = 0, index = 0;
  attention::PlanFeatures attend_features, index_features;
  double sum() const { return around + attend + index; }
};

class Fit {
 public:
  // New tokens of prefills that the host's time covers; with a few more it may, unless they take far longer.
  static constexpr std::uint32_t kSmall = 256, kFew = 512;
  static constexpr double kVisible = 1.5, kFar = 2.5;  // times the host's
  static constexpr double kPool = 3e6;                 // tokens: more than the KV pool of a GPU holds
  static constexpr std::uint32_t kLong = 100000;       // tokens of a request from which the host does more

  Fit(const proto::HardwareProfile& profile, bool decode) : profile_(profile), decode_(decode) {
    const bool blackwell = profile.architecture() == "blackwell";
    padding_ = blackwell ? 128 : 64;
    // Batches that the servers of the table ran as captured graphs.
    most_captured_ = blackwell ? 512 : 256;
  }

  void add(std::vector<SparseRow> rows, std::size_t most);
  void minimise();
  void correct();
  bool empty() const { return rows_.empty(); }
  SparseFit report() const;

 private:
  double price(const SparseRow& row, const Prices& prices) const {
    return std::max(parts_of(row, prices).sum(), host_of(row));
  }
  double host_of(const SparseRow& row) const {
    const auto found = host_.find(row.group);
    return found == host_.end() ? 0 : found->second;
  }
  bool covered(const SparseRow& row) const {
    return row.seconds < (row.batch * row.q_len < kFew ? kFar : kVisible) * host_of(row);
  }
  Parts parts_of(const SparseRow& row, const Prices& prices) const;
  void plan(SparseRow& row) const;
  std::string class_of(const std::string& name) const {
    return "attention.nsa." + name + (decode_ ? ".decode" : ".extend");
  }
  // As the profile says, where it has the classes.
  Prices at_hand() const;

  const proto::HardwareProfile& profile_;
  bool decode_;
  std::uint32_t padding_, most_captured_;
  Prices fitted_;
  std::array<SurroundingProducts, 2> products_;  // bf16, fp8
  std::map<std::string, double> host_;           // seconds, by group of rows
  std::size_t passed_over_ = 0;
  std::vector<SparseRow> rows_, left_out_;
  std::vector<SparseRow> covered_;  // left out, too, and of the host's time
};

void Fit::add(std::vector<SparseRow> rows, std::size_t most) {
  std::map<std::string, std::vector<double>> small;
  for (SparseRow& row : rows) {
    const std::uint32_t length = row.q_len + row.prefix;
    if (length >= kLong)
      row.group += " " + std::to_string(std::bit_width(length)) + "x" + std::to_string(row.batch);
    if (row.batch * row.q_len <= kSmall) small[row.group].push_back(row.seconds);
  }
  if (!decode_) {
    for (auto& [group, seconds] : small) {
      const auto quarter = static_cast<std::ptrdiff_t>(seconds.size() / 4);
      std::nth_element(seconds.begin(), seconds.begin() + quarter, seconds.end());
      host_[group] = seconds[static_cast<std::size_t>(quarter)];
    }
  }
  const std::size_t before = rows.size();
  std::erase_if(rows, [&](const SparseRow& row) {
    const double stored = double(row.batch) * (row.q_len + row.prefix);
    return decode_ ? row.batch > most_captured_ : !row.indexer || stored > kPool;
  });
  passed_over_ = before - rows.size();
  for (SparseRow& row : rows) {
    if (!row.held_out || !covered(row)) continue;
    plan(row);
    covered_.push_back(row);
  }
  std::erase_if(rows, [&](const SparseRow& row) { return covered(row); });
  std::size_t seen = 0;
  const std::size_t every = std::max<std::size_t>(1, rows.size() / most);
  for (SparseRow& row : rows) {
    if (!row.held_out && seen++ % every != 0) continue;
    plan(row);
    (row.held_out ? left_out_ : rows_).push_back(std::move(row));
  }
  for (const SparseRow& row : rows_) fitted_.kernels[row.kernel];
}

// As attention/backends/nsa.cc plans it.
void Fit::plan(SparseRow& row) const {
  const std::uint32_t q_len = decode_ ? 1 : row.q_len;
  for (std::uint32_t i = 0; i < row.batch; ++i) row.plan.items.push_back({i, row.prefix, q_len});
  row.plan.top_k = kTopK;
  row.plan.whole_list = row.kernel == "flashmla_kv" || row.kernel == "flashmla_sparse";
  row.plan.rows = row.kernel == "fa3" || row.kernel == "trtllm"
                      ? std::max(64U, row.heads)
                      : (row.heads + padding_ - 1) / padding_ * padding_;
  if (row.kernel == "flashmla_kv") row.plan.rows = std::max(64U, row.heads);
  if (decode_) {
    const double share = profile_.multiprocessors() / std::max(1.0, double(row.batch));
    const auto parts = static_cast<std::uint32_t>(std::clamp(share, 1.0, 16.0));
    row.plan.part = parts == 1 ? 0 : kTopK / parts;
  }
  row.load = attention::load_of(row.plan);
  if (row.kernel != "dense") row.plan.items.clear();  // the price needs their sums only
}

Parts Fit::parts_of(const SparseRow& row, const Prices& prices) const {
  const bool dense = row.kernel == "dense";
  const attention::SparseCost costs(profile_, prices.kernels.at(row.kernel), prices.index,
                                    prices.corrections_of(row.kernel), prices.corrections_of(kIndexer));
  const SurroundingProducts& of = products_[row.fp8_gemm ? 1 : 0];
  const double rate = row.fp8_gemm ? profile_.dense_flops_fp8() : profile_.dense_flops_bf16();
  Parts parts;
  parts.around = of.rest + of.per_row * row.load.queries;
  for (const Product& p : products(row, dense)) {
    const bool fp8 = row.fp8_gemm && p.times == 1;
    const double flops = 2 * p.m * p.n * p.k * p.times;
    const double bytes = (p.n * p.k * (fp8 ? 1 : 2) + p.m * (p.k * (fp8 ? 1 : 2) + p.n * 2)) * p.times;
    parts.around += std::max(flops / ((fp8 ? rate : profile_.dense_flops_bf16()) * of.compute),
                             bytes / (profile_.memory_bandwidth() * of.memory));
  }
  const attention::IndexShape index{static_cast<std::uint32_t>(row.model.index_heads), 128};
  attention::LayerShape layer;
  layer.num_q_heads = row.heads;
  if (dense) {
    layer.form = attention::AttentionForm::kMlaExpanded;
    layer.head_dim = static_cast<std::uint32_t>(row.model.nope + kRope);
    layer.v_head_dim = static_cast<std::uint32_t>(row.model.v);
    parts.attend = costs.dense(row.plan, row.load, layer).seconds;
    parts.attend_features = costs.dense_features(row.load, layer);
    parts.index = costs.index_keys_only(row.load, index).seconds;
    return parts;
  }
  layer.num_kv_heads = 1;
  layer.head_dim = 576;
  layer.v_head_dim = 512;
  const bool raw = row.kernel == "trtllm" && row.fp8_kv;
  layer.q_bytes = raw ? 1 : 2;
  const double token_bytes = raw ? 576 : row.fp8_kv ? 656 : 1152;
  parts.attend = costs.attend(row.plan, row.load, layer, token_bytes).seconds;
  parts.attend_features = costs.attend_features(row.load, layer, token_bytes);
  if (!row.indexer) return parts;
  if (!decode_ && row.load.searching == 0) {
    parts.index = costs.index_keys_only(row.load, index).seconds;
    return parts;
  }
  parts.index = costs.index(row.load, index, !decode_).seconds;
  parts.index_features = costs.index_features(row.load, index);
  return parts;
}

void Fit::minimise() {
  CoordinateSearch search;
  const auto vary = [&search](double& value, double least, double most) { search.vary(value, least, most); };
  for (auto& [name, c] : fitted_.kernels) {
    vary(c.compute, 0.02, 1);
    vary(c.memory, 0.05, 1);
    vary(c.fixed_seconds, 5e-7, 2e-4);
    vary(c.block_seconds, 1e-9, 1e-4);
    vary(c.overlap, 1e-3, 1);
    if (name != "dense") vary(c.l2_memory, 1, 10);
    if (decode_) vary(c.block_compute, 0.3, 8);
  }
  IndexCoefficients& index = fitted_.index;
  vary(index.compute, 0.02, 1);
  vary(index.memory, 0.05, 1);
  vary(index.fixed_seconds, 1e-6, 2e-4);
  vary(index.overlap, 1e-3, 1);
  vary(index.select_seconds, 1e-7, 5e-5);
  vary(index.select_token_seconds, 1e-12, 1e-8);
  for (SurroundingProducts& p : products_) {
    vary(p.compute, 0.05, 1);
    vary(p.memory, 0.05, 1);
    vary(p.rest, 1e-6, 1e-3);
    vary(p.per_row, 1e-11, 1e-6);
  }
  const auto loss = [&] {
    double sum = 0;
    for (const SparseRow& row : rows_)
      sum += std::min(1.0, std::abs(std::log(price(row, fitted_) / row.seconds)));
    return sum / double(rows_.size());
  };
  search.minimise(loss, 2);
}

// What the rows of the fit say beyond the formulas: of each kernel, of the module's time less the price of
// all else; then of the indexer, less the corrected kernels. Only where it is a good part of the module.
void Fit::correct() {
  constexpr double kPart = 0.2;
  const auto correct = [&](const std::string& name, std::vector<SurfaceRow> rows,
                           const std::vector<GridWish>& grids) {
    CorrectionOptions options;
    options.least = 0.4;  // beyond that the formula is wrong, and no surface makes it right
    options.most = 2.5;
    add_corrections(std::move(rows), kPlanFeatures, {&grids, 1}, options, fitted_.corrected[name]);
  };
  const std::vector<GridWish> kernel_grids = {
      {{"requests", 3}, {"group", 3}, {"element_bytes", 2}},
      {{"requests", 5}, {"prefix", 3}, {"group", 3}, {"element_bytes", 2}},
      {{"requests", 5}, {"tokens", 4}, {"group", 5}, {"element_bytes", 2}},
      {{"requests", 6}, {"tokens", 4}, {"prefix", 4}, {"group", 3}, {"element_bytes", 2}},
      {{"requests", 6}, {"tokens", 4}, {"l2_fill", 4}, {"group", 3}, {"element_bytes", 2}},
  };
  const std::vector<GridWish> dense_grids = {
      {{"tokens", 3}, {"requests", 3}, {"kv_heads", 3}},
      {{"tokens", 5}, {"requests", 5}, {"prefix", 4}, {"kv_heads", 3}}};
  const std::vector<GridWish> index_grids = {
      {{"requests", 3}, {"prefix", 3}, {"group", 2}},
      {{"requests", 5}, {"tokens", 4}, {"prefix", 5}, {"group", 2}},
  };
  const auto add = [&](std::vector<SurfaceRow>& to, const SparseRow& row, const Parts& parts, double own,
                       const attention::PlanFeatures& features) {
    const double ratio = (row.seconds - (parts.sum() - own)) / own;
    if (own < kPart * parts.sum() || ratio < 0.2 || ratio > 5) return;
    const auto values = features.values();
    to.push_back({{values.begin(), values.end()}, ratio, own / parts.sum()});
  };
  for (const auto& [name, c] : fitted_.kernels) {
    std::vector<SurfaceRow> rows;
    for (const SparseRow& row : rows_) {
      if (row.kernel != name) continue;
      const Parts parts = parts_of(row, fitted_);
      add(rows, row, parts, parts.attend, parts.attend_features);
    }
    correct(name, std::move(rows), name == "dense" ? dense_grids : kernel_grids);
  }
  std::vector<SurfaceRow> rows;
  for (const SparseRow& row : rows_) {
    const Parts parts = parts_of(row, fitted_);
    if (parts.index_features.requests > 0) add(rows, row, parts, parts.index, parts.index_features);
  }
  correct(kIndexer, std::move(rows), index_grids);
}

Prices Fit::at_hand() const {
  Prices out;
  const auto take = [&](const std::string& name) {
    if (const auto* const entry = find_efficiency(profile_, class_of(name))) out.corrected[name] = *entry;
  };
  for (const auto& [name, c] : fitted_.kernels) {
    out.kernels[name] = coefficients_of<PlanCoefficients>(profile_, class_of(name));
    take(name);
  }
  out.index = coefficients_of<IndexCoefficients>(profile_, class_of(kIndexer));
  take(kIndexer);
  return out;
}

SparseFit Fit::report() const {
  SparseFit out;
  const Prices before = at_hand();
  Prices formula = fitted_;
  formula.corrected.clear();
  const auto add_class = [&](const std::string& name, auto has) {
    SparseFit::Class& of = out.classes.emplace_back();
    of.name = name;
    of.entry.set_operator_class(class_of(name));
    if (name == kIndexer) {
      write_coefficients(fitted_.index, of.entry);
    } else {
      write_coefficients(fitted_.kernels.at(name), of.entry);
    }
    if (const auto found = fitted_.corrected.find(name); found != fitted_.corrected.end())
      *of.entry.mutable_corrections() = found->second.corrections();
    std::vector<double> now, then;
    for (const SparseRow& row : left_out_) {
      if (!has(row)) continue;
      now.push_back(row.seconds / price(row, fitted_));
      then.push_back(row.seconds / price(row, before));
    }
    of.rows = static_cast<std::size_t>(std::count_if(rows_.begin(), rows_.end(), has)) + now.size();
    of.left_out = relative_errors(now);
    of.before = relative_errors(then);
    of.set_errors(of.left_out);
  };
  for (const auto& [name, c] : fitted_.kernels)
    add_class(name, [&kernel = name](const SparseRow& row) { return row.kernel == kernel; });
  add_class(kIndexer, [](const SparseRow& row) { return row.indexer && row.kernel != "dense"; });
  for (const auto* rows : {&rows_, &left_out_, &covered_})
    for (const SparseRow& row : *rows)
      out.priced.push_back({row, price(row, fitted_), price(row, formula), rows == &covered_});
  out.rows = rows_.size();
  out.passed_over = passed_over_;
  out.of_the_host = covered_.size();
  out.bf16 = products_[0];
  out.fp8 = products_[1];
  return out;
}

}  // namespace

SparseFit fit_sparse(const proto::HardwareProfile& profile, bool decode, std::vector<SparseRow> rows,
                     std::size_t most) {
  Fit fit(profile, decode);
  fit.add(std::move(rows), most);
  if (fit.empty()) return {};
  fit.minimise();
  fit.correct();
  return fit.report();
}

}  // namespace tpsim::calibrate
