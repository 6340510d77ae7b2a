// Fits the coefficients of attention/sparse_cost.h to measured modules of DeepSeek sparse attention.
//
//   fit_sparse HARDWARE_JSON KERNELS_FOLDER
//
// prints OperatorEfficiency objects ("attention.nsa.KERNEL.extend" …) as JSON lines, and errors to stderr. A
// row is a whole attention module, so the fit has coefficients of its own for what surrounds the attention:
// matrix products by roofline, and a fixed rest; a prefill, which runs eager, takes as long as the slower of
// that and the host, whose time is that of the smallest prefills of one server and length of its caches. They
// are not printed. Left out are prefills of "skip_indexer" rows, whose selection was made up, and whose times
// jump with it, those of more stored tokens than a GPU's KV pool holds, and decodes of more requests than
// graphs were captured for, which take the host's time. One row in five, by a hash of its shape, is held out
// of the fit; errors are of those of these rows that take longer than the host, and beside them of all.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "launch/calibrate/coordinate_search.h"
#include "launch/calibrate/corrections.h"
#include "launch/kernels/sparse_rows.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::calibration {
namespace {

// Of one kind of matrix products (bf16 or fp8 blocks).
struct Products {
  double compute = 0.6, memory = 0.6, rest = 2e-5, per_row = 1e-8;
};

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

  void add(std::vector<SparseRow> rows, std::size_t most) {
    std::map<std::string, std::vector<double>> small;
    for (SparseRow& row : rows) {
      const std::uint32_t length = row.q_len + row.prefix;
      if (length >= kLong)
        row.group += " " + std::to_string(std::bit_width(length)) + "x" + std::to_string(row.batch);
      if (row.batch * row.q_len <= kSmall) small[row.group].push_back(row.seconds);
    }
    if (!decode_) {
      for (auto& [group, seconds] : small) {
        std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 4, seconds.end());
        host_[group] = seconds[seconds.size() / 4];
      }
    }
    const std::size_t before = rows.size();
    std::erase_if(rows, [&](const SparseRow& row) {
      const double stored = double(row.batch) * (row.q_len + row.prefix);
      return decode_ ? row.batch > most_captured_ : !row.indexer || stored > kPool;
    });
    left_out_ = before - rows.size();
    const std::size_t kept = rows.size();
    for (SparseRow& row : rows) {
      if (!row.held_out || !covered(row)) continue;
      plan(row);
      covered_.push_back(row);
    }
    std::erase_if(rows, [&](const SparseRow& row) { return covered(row); });
    behind_host_ = kept - rows.size();
    std::size_t seen = 0;
    const std::size_t every = std::max<std::size_t>(1, rows.size() / most);
    for (SparseRow& row : rows) {
      if (!row.held_out && seen++ % every != 0) continue;
      plan(row);
      (row.held_out ? held_out_ : rows_).push_back(std::move(row));
    }
    for (const SparseRow& row : rows_) kernels_[row.kernel];
  }

  void minimise() {
    values_.clear();
    low_.clear();
    high_.clear();
    for (auto& [name, c] : kernels_) {
      vary(c.compute, 0.02, 1);
      vary(c.memory, 0.05, 1);
      vary(c.fixed_seconds, 5e-7, 2e-4);
      vary(c.block_seconds, 1e-9, 1e-4);
      vary(c.overlap, 1e-3, 1);
      if (name != "dense") vary(c.l2_memory, 1, 10);
      if (decode_) vary(c.block_compute, 0.3, 8);
    }
    vary(index_.compute, 0.02, 1);
    vary(index_.memory, 0.05, 1);
    vary(index_.fixed_seconds, 1e-6, 2e-4);
    vary(index_.overlap, 1e-3, 1);
    vary(index_.select_seconds, 1e-7, 5e-5);
    vary(index_.select_token_seconds, 1e-12, 1e-8);
    for (Products& p : products_) {
      vary(p.compute, 0.05, 1);
      vary(p.memory, 0.05, 1);
      vary(p.rest, 1e-6, 1e-3);
      vary(p.per_row, 1e-11, 1e-6);
    }
    const auto loss = [&] {
      double sum = 0;
      for (const SparseRow& row : rows_) sum += std::min(1.0, std::abs(std::log(price(row) / row.seconds)));
      return sum / double(rows_.size());
    };
    for (int round = 0; round < 2; ++round) calibrate::minimise(values_, low_, high_, loss);
  }

  // What the rows of the fit say beyond the formulas: of each kernel, of the module's time less the price of
  // all else; then of the indexer, less the corrected kernels. Only where it is a good part of the module.
  void correct() {
    constexpr double kPart = 0.2;
    calibrate::CorrectionOptions options;
    options.least = 0.4;  // beyond that the formula is wrong, and no surface makes it right
    options.most = 2.5;
    const std::vector<calibrate::GridWish> kernel_grids = {
        {{"requests", 3}, {"group", 3}, {"element_bytes", 2}},
        {{"requests", 5}, {"prefix", 3}, {"group", 3}, {"element_bytes", 2}},
        {{"requests", 5}, {"tokens", 4}, {"group", 5}, {"element_bytes", 2}},
        {{"requests", 6}, {"tokens", 4}, {"prefix", 4}, {"group", 3}, {"element_bytes", 2}},
        {{"requests", 6}, {"tokens", 4}, {"l2_fill", 4}, {"group", 3}, {"element_bytes", 2}},
    };
    const std::vector<calibrate::GridWish> dense_grids = {
        {{"tokens", 3}, {"requests", 3}, {"kv_heads", 3}},
        {{"tokens", 5}, {"requests", 5}, {"prefix", 4}, {"kv_heads", 3}}};
    const std::vector<calibrate::GridWish> index_grids = {
        {{"requests", 3}, {"prefix", 3}, {"group", 2}},
        {{"requests", 5}, {"tokens", 4}, {"prefix", 5}, {"group", 2}},
    };
    const auto add = [&](std::vector<calibrate::SurfaceRow>& to, const SparseRow& row, const Parts& parts,
                         double own, const attention::PlanFeatures& features) {
      const double ratio = (row.seconds - (parts.sum() - own)) / own;
      if (own < kPart * parts.sum() || ratio < 0.2 || ratio > 5) return;
      const auto values = features.values();
      to.push_back({{values.begin(), values.end()}, ratio, own / parts.sum()});
    };
    for (const auto& [name, c] : kernels_) {
      std::vector<calibrate::SurfaceRow> rows;
      for (const SparseRow& row : rows_) {
        if (row.kernel != name) continue;
        const Parts parts = parts_of(row);
        add(rows, row, parts, parts.attend, parts.attend_features);
      }
      if (auto chosen = calibrate::choose_correction(rows, kPlanFeatures,
                                                     name == "dense" ? dense_grids : kernel_grids, options))
        *corrected_[name].add_corrections() = *chosen;
    }
    std::vector<calibrate::SurfaceRow> rows;
    for (const SparseRow& row : rows_) {
      const Parts parts = parts_of(row);
      if (parts.index_features.requests > 0) add(rows, row, parts, parts.index, parts.index_features);
    }
    if (auto chosen = calibrate::choose_correction(rows, kPlanFeatures, index_grids, options))
      *corrected_["indexer"].add_corrections() = *chosen;
  }
  std::vector<proto::CorrectionSurface> corrections_found(const std::string& name) const {
    const auto found = corrected_.find(name);
    if (found == corrected_.end()) return {};
    return {found->second.corrections().begin(), found->second.corrections().end()};
  }

  // Relative errors of the held-out rows that `which` accepts: how many, median, 90th percentile.
  template <typename Which>
  std::string errors(Which which, bool with_covered = false) const {
    std::vector<double> errors;
    last_median_ = last_p90_ = 0;
    for (const SparseRow& row : held_out_) {
      if (which(row)) errors.push_back(std::abs(price(row) / row.seconds - 1));
    }
    for (const SparseRow& row : covered_) {
      if (with_covered && which(row)) errors.push_back(std::abs(price(row) / row.seconds - 1));
    }
    if (errors.empty()) return "none";
    std::sort(errors.begin(), errors.end());
    char text[100];
    std::snprintf(text, sizeof text, "%zu held out, median %.1f %%, p90 %.1f %%", errors.size(),
                  100 * errors[errors.size() / 2], 100 * errors[errors.size() * 9 / 10]);
    last_median_ = errors[errors.size() / 2];
    last_p90_ = errors[errors.size() * 9 / 10];
    return text;
  }
  double last_median() const { return last_median_; }
  double last_p90() const { return last_p90_; }
  // Median of the relative error of (row with indexer) - (row without), over pairs of equal shape.
  std::string indexer_errors() const {
    std::map<std::string, const SparseRow*> without;
    const auto shape = [](const SparseRow& row) {
      std::stringstream text;
      text << row.kernel << row.model.hidden << row.fp8_gemm << row.fp8_kv << row.heads << "," << row.batch
           << "," << row.q_len << "," << row.prefix;
      return text.str();
    };
    for (const auto* rows : {&rows_, &held_out_}) {
      for (const SparseRow& row : *rows) {
        if (!row.indexer) without[shape(row)] = &row;
      }
    }
    std::vector<double> errors;
    for (const SparseRow& row : held_out_) {
      const auto found = without.find(shape(row));
      if (!row.indexer || found == without.end()) continue;
      const double measured = row.seconds - found->second->seconds;
      if (measured > 0) errors.push_back(std::abs((price(row) - price(*found->second)) / measured - 1));
    }
    if (errors.empty()) return "none";
    std::sort(errors.begin(), errors.end());
    char text[100];
    std::snprintf(text, sizeof text, "%zu pairs, median %.1f %%", errors.size(),
                  100 * errors[errors.size() / 2]);
    return text;
  }

  const std::map<std::string, PlanCoefficients>& kernels() const { return kernels_; }
  const IndexCoefficients& index() const { return index_; }
  const Products& products_of(bool fp8) const { return products_[fp8 ? 1 : 0]; }
  std::size_t left_out() const { return left_out_; }
  std::size_t behind_host() const { return behind_host_; }
  const std::vector<SparseRow>& held_out() const { return held_out_; }
  std::size_t size() const { return rows_.size(); }
  // Seconds of one module's operators.
  struct Parts {
    double around = 0, attend = 0, index = 0;
    attention::PlanFeatures attend_features, index_features;
    double sum() const { return around + attend + index; }
  };
  double price(const SparseRow& row) const { return std::max(parts_of(row).sum(), host_of(row)); }

 private:
  double host_of(const SparseRow& row) const {
    const auto found = host_.find(row.group);
    return found == host_.end() ? 0 : found->second;
  }
  bool covered(const SparseRow& row) const {
    return row.seconds < (row.batch * row.q_len < kFew ? kFar : kVisible) * host_of(row);
  }

  Corrections corrections_of(const std::string& name) const {
    const auto found = corrected_.find(name);
    return {found == corrected_.end() ? nullptr : &found->second, kPlanFeatures};
  }
  Parts parts_of(const SparseRow& row) const {
    const bool dense = row.kernel == "dense";
    const attention::SparseCost costs(profile_, kernels_.at(row.kernel), index_, corrections_of(row.kernel),
                                      corrections_of("indexer"));
    const Products& of = products_[row.fp8_gemm ? 1 : 0];
    const double rate = (row.fp8_gemm ? profile_.dense_flops_fp8() : profile_.dense_flops_bf16());
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

  void vary(double& value, double low, double high) {
    values_.push_back(&value);
    low_.push_back(low);
    high_.push_back(high);
  }

  // As attention/backends/nsa.cc plans it.
  void plan(SparseRow& row) const {
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

  const proto::HardwareProfile& profile_;
  bool decode_;
  std::uint32_t padding_, most_captured_;
  std::map<std::string, PlanCoefficients> kernels_;
  IndexCoefficients index_;
  Products products_[2];
  std::map<std::string, double> host_;                          // seconds, by group of rows
  std::map<std::string, proto::OperatorEfficiency> corrected_;  // their corrections only; and "indexer"
  std::size_t left_out_ = 0, behind_host_ = 0;
  std::vector<SparseRow> rows_, held_out_;
  std::vector<SparseRow> covered_;  // held out, too, and of the host's time
  std::vector<double*> values_;
  std::vector<double> low_, high_;
  mutable double last_median_ = 0, last_p90_ = 0;
};

int run(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: fit_sparse HARDWARE_JSON KERNELS_FOLDER [DUMP]\n";
    return 2;
  }
  const auto read_in = read_profile(argv[1]);
  if (!read_in) return 2;
  const proto::HardwareProfile& profile = *read_in;
  const std::filesystem::path folder = argv[2];
  for (const bool decode : {true, false}) {
    const std::string phase = decode ? "decode" : "extend";
    Fit fit(profile, decode);
    fit.add(sparse_rows(folder, decode), 4000);
    fit.minimise();
    const auto all = [](const SparseRow&) { return true; };
    const std::string alone = fit.errors(all);
    fit.correct();
    std::fprintf(stderr,
                 "%s %s: %zu rows, %zu left out, formulas alone %s, corrected %s; %zu of the host's time, "
                 "with them %s\n",
                 profile.name().c_str(), phase.c_str(), fit.size(), fit.left_out(), alone.c_str(),
                 fit.errors(all).c_str(), fit.behind_host(), fit.errors(all, true).c_str());
    std::fprintf(stderr, "   indexer alone: %s\n", fit.indexer_errors().c_str());
    for (const bool fp8 : {false, true}) {
      const Products& p = fit.products_of(fp8);
      std::fprintf(stderr, "   products fp8=%d: compute %.2f memory %.2f rest %.1f us, per row %.2f ns\n",
                   fp8, p.compute, p.memory, p.rest * 1e6, p.per_row * 1e9);
    }
    const std::string source = std::string("dsa_") + (decode ? "generation" : "context") +
                               "_module_perf of " + folder.filename().string() +
                               ", SGLang 0.5.14 (AIConfigurator, Apache-2.0); error of held-out modules";
    for (const auto& [kernel, c] : fit.kernels()) {
      for (const bool indexer : {true, false}) {
        std::fprintf(
            stderr, "   %s%s: %s\n", kernel.c_str(), indexer ? " with indexer" : " without",
            fit.errors([&](const SparseRow& row) { return row.kernel == kernel && row.indexer == indexer; })
                .c_str());
      }
      fit.errors([&](const SparseRow& row) { return row.kernel == kernel; });
      print_entry("attention.nsa." + kernel + "." + phase, c, fit.last_median(), source, fit.last_p90(),
                  fit.corrections_found(kernel));
    }
    fit.errors([&](const SparseRow& row) { return row.indexer && row.kernel != "dense"; });
    print_entry("attention.nsa.indexer." + phase, fit.index(), fit.last_median(), source, fit.last_p90(),
                fit.corrections_found("indexer"));
    if (argc > 3) {
      std::ofstream dump(argv[3], decode ? std::ios::trunc : std::ios::app);
      for (const SparseRow& row : fit.held_out())
        dump << phase << "," << row.kernel << "," << row.indexer << "," << row.model.hidden << ","
             << row.fp8_gemm << "," << row.fp8_kv << "," << row.heads << "," << row.batch << "," << row.q_len
             << "," << row.prefix << "," << row.seconds * 1e6 << "," << fit.price(row) * 1e6 << "\n";
    }
  }
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run(argc, argv); }
