#include "launch/lab/calibrate/compressed_fit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "attention/sparse_cost.h"
#include "launch/lab/calibrate/coordinate_search.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "rank/cost/op_cost.h"

namespace tpsim::calibrate {
namespace {

using kernels::CompressedRow;

// Of classes "attention.dsv4.…", or "attention.msa.…".
std::string phase_of(const CompressedRow& row) {
  const bool widens = row.of_blocks() && row.layer.fp8_kv();  // a kernel that widens what it reads
  return std::string(widens ? "_fp8" : "") + (row.decode ? ".decode" : ".extend");
}
std::string kind_of(const CompressedRow& row) {
  return (row.of_blocks() ? "blocks" : row.has_indexer() ? "csa" : "hca") + phase_of(row);
}
std::string indexer_of(const CompressedRow& row) { return "indexer" + phase_of(row); }

constexpr std::string_view kProducts[] = {rank::kCompressedClass, rank::kCompressedFp8Class};

struct Module {
  CompressedRow row;
  std::vector<kernels::ModuleProduct> products;
};

class ModuleFit {
 public:
  explicit ModuleFit(const proto::HardwareProfile& profile) : profile_(profile) {}

  void add(std::vector<CompressedRow> rows);
  void minimise();
  void correct();
  std::vector<CompressedFit> report() const;
  bool empty() const { return fitted_.empty(); }

 private:
  struct Prices {
    std::map<std::string, PlanCoefficients> kernels;
    std::map<std::string, IndexCoefficients> indexers;
    OperatorCoefficients products[2];  // in 16 bit, in fp8
    std::map<std::string, proto::OperatorEfficiency> corrected;
    Corrections corrections_of(const std::string& name) const {
      const auto found = corrected.find(name);
      return {found == corrected.end() ? nullptr : &found->second, kPlanFeatures};
    }
  };
  // By kind and phase.
  std::map<std::string, attention::SparseCost> costs_of(const Prices& prices) const;
  double products(const Module& module, const Prices& prices) const;
  std::vector<double> ratios(const std::vector<Module>& modules, const Prices& prices) const;
  std::string class_of(const std::string& name) const {
    return name.starts_with("gemm") ? name : (of_blocks_ ? "attention.msa." : "attention.dsv4.") + name;
  }
  Prices at_hand() const;
  void begin_at_triton(const CompressedRow& row);

  const proto::HardwareProfile& profile_;
  bool of_blocks_ = false;
  Prices prices_;
  std::vector<Module> fitted_, left_out_;
};

void ModuleFit::add(std::vector<CompressedRow> rows) {
  for (OperatorCoefficients& c : prices_.products) c.fixed_seconds = 2e-6;
  of_blocks_ = !rows.empty() && rows.front().of_blocks();
  for (CompressedRow& row : rows) {
    std::vector<kernels::ModuleProduct> products;
    if (!of_blocks_) products = kernels::products_of(row);
    prices_.kernels[kind_of(row)].fixed_seconds = 2e-5;
    if (row.has_indexer()) prices_.indexers[indexer_of(row)];
    if (of_blocks_) begin_at_triton(row);
    (row.held_out ? left_out_ : fitted_).push_back({std::move(row), std::move(products)});
  }
}

// About where Triton's kernels are on any GPU: the search goes downhill only.
void ModuleFit::begin_at_triton(const CompressedRow& row) {
  PlanCoefficients& kernel = prices_.kernels[kind_of(row)];
  kernel.compute = 0.08;
  kernel.memory = 0.8;
  kernel.fixed_seconds = 1e-5;
  IndexCoefficients& index = prices_.indexers[indexer_of(row)];
  index.compute = 0.15;
  index.memory = 0.8;
  index.fixed_seconds = 1e-5;
  index.select_seconds = 1e-8;
  index.select_token_seconds = row.decode ? 1e-8 : 2.7e-6;
}

std::map<std::string, attention::SparseCost> ModuleFit::costs_of(const Prices& prices) const {
  std::map<std::string, attention::SparseCost> out;
  for (const auto& [name, c] : prices.kernels) {
    const std::string indexer = "indexer" + name.substr(name.find_first_of("._"));
    const auto found = prices.indexers.find(indexer);
    out.emplace(name, attention::SparseCost(
                          profile_, c, found == prices.indexers.end() ? IndexCoefficients{} : found->second,
                          prices.corrections_of(name), prices.corrections_of(indexer)));
  }
  return out;
}

double ModuleFit::products(const Module& module, const Prices& prices) const {
  double seconds = module.row.apart;
  for (const kernels::ModuleProduct& of : module.products) {
    const bool fp8 = of.format.quantized();
    seconds += rank::OperatorCosts::compressed_product(prices.products[fp8 ? 1 : 0], profile_,
                                                       module.row.load.queries, static_cast<double>(of.n),
                                                       static_cast<double>(of.k), fp8)
                   .seconds;
  }
  return seconds;
}

// Measured over priced, of each.
std::vector<double> ModuleFit::ratios(const std::vector<Module>& modules, const Prices& prices) const {
  const std::map<std::string, attention::SparseCost> costs = costs_of(prices);
  std::vector<double> out;
  out.reserve(modules.size());
  for (const Module& module : modules)
    out.push_back(module.row.seconds / (products(module, prices) +
                                        kernels::attention_price(costs.at(kind_of(module.row)), module.row)));
  return out;
}

void ModuleFit::minimise() {
  CoordinateSearch search;
  // What stands still between eager launches is no kernel's: captured decodes of the same come to 1e-5.
  const double most_fixed = of_blocks_ ? 3e-5 : 2e-4;
  for (auto& [name, c] : prices_.kernels) {
    search.vary(c.compute, 0.02, 1);
    search.vary(c.memory, 0.05, 1);
    search.vary(c.fixed_seconds, 5e-7, most_fixed);
    search.vary(c.block_seconds, 1e-9, 1e-4);
    search.vary(c.overlap, 1e-3, 1);
    search.vary(c.l2_memory, 1, 10);
    if (name.ends_with(".decode")) search.vary(c.block_compute, 0.3, 8);
  }
  for (OperatorCoefficients& c : prices_.products) {
    if (of_blocks_) break;  // priced by classes of others
    search.vary(c.compute, 0.05, 1);
    search.vary(c.memory, 0.05, 1);
    search.vary(c.fixed_seconds, 1e-7, 2e-5);
    search.vary(c.overlap, 1e-3, 1);
  }
  for (auto& [name, index] : prices_.indexers) {
    search.vary(index.compute, 0.02, 1);
    search.vary(index.memory, 0.05, 1);
    search.vary(index.fixed_seconds, 5e-7, most_fixed);
    search.vary(index.overlap, 1e-3, 1);
    search.vary(index.select_seconds, of_blocks_ ? 1e-9 : 1e-7, 5e-5);
    search.vary(index.select_token_seconds, 1e-12, of_blocks_ ? 1e-5 : 1e-8);  // of blocks: a token
  }
  const auto loss = [&] {
    double sum = 0;
    for (const double ratio : ratios(fitted_, prices_)) sum += std::min(1.0, std::abs(std::log(ratio)));
    return sum / static_cast<double>(fitted_.size());
  };
  search.minimise(loss, 2);
}

// Of each kernel, of a module's time less the price of all else, where it is a good part of the module; then
// of the indexer, less the corrected kernels.
void ModuleFit::correct() {
  constexpr double kPart = 0.15;
  const GridWish kernel = {{"requests", 6}, {"tokens", 4}, {"prefix", 3}, {"group", 4}};
  std::vector<GridWish> kernels = {
      {{"requests", 7}, {"group", 5}}, kernel, {{"requests", 9}, {"tokens", 6}, {"group", 5}}};
  // A KV head has the same query heads in every layer, and how many sequences its queries are of matters
  // more.
  if (of_blocks_)
    kernels.insert(kernels.end(),
                   {{{"requests", 6}, {"tokens", 4}, {"prefix", 6}}, {{"tokens", 6}, {"prefix", 8}}});
  const std::vector<GridWish> indexers = {{{"requests", 3}, {"prefix", 4}},
                                          {{"requests", 6}, {"tokens", 5}, {"prefix", 7}}};
  const auto correct = [&](const std::string& name, const std::vector<GridWish>& grids) {
    std::vector<SurfaceRow> rows;
    const std::map<std::string, attention::SparseCost> costs = costs_of(prices_);
    const bool index = prices_.indexers.contains(name);
    for (const Module& module : fitted_) {
      const CompressedRow& row = module.row;
      if (index ? !row.has_indexer() || name != indexer_of(row) : name != kind_of(row)) continue;
      const attention::SparseCost& price = costs.at(kind_of(row));
      const double all = products(module, prices_) + kernels::attention_price(price, row);
      const double own = index ? kernels::index_price(price, row) : kernels::attend_price(price, row);
      const double ratio = (row.seconds - (all - own)) / own;
      if (own < kPart * all || ratio < 0.2 || ratio > 5) continue;
      const auto values =
          (index ? kernels::index_features(price, row) : kernels::attend_features(price, row)).values();
      rows.push_back({{values.begin(), values.end()}, ratio, own / all});
    }
    if (rows.size() < 50) return;
    CorrectionOptions options;
    options.least = 0.3;
    options.most = 3;
    add_corrections(std::move(rows), kPlanFeatures, {&grids, 1}, options, prices_.corrected[name]);
  };
  for (const auto& [name, c] : prices_.kernels) correct(name, kernels);
  for (const auto& [name, c] : prices_.indexers) correct(name, indexers);
}

ModuleFit::Prices ModuleFit::at_hand() const {
  Prices out;
  const auto take = [&](const std::string& name) {
    if (const auto* const entry = find_efficiency(profile_, class_of(name))) out.corrected[name] = *entry;
  };
  for (const auto& [name, c] : prices_.kernels) {
    out.kernels[name] = coefficients_of<PlanCoefficients>(profile_, class_of(name));
    take(name);
  }
  for (const auto& [name, c] : prices_.indexers)
    out.indexers[name] = coefficients_of<IndexCoefficients>(profile_, class_of(name));
  for (std::size_t i = 0; i < 2; ++i)
    out.products[i] = coefficients_of<OperatorCoefficients>(profile_, kProducts[i]);
  for (const auto& [name, c] : prices_.indexers) take(name);
  return out;
}

std::vector<CompressedFit> ModuleFit::report() const {
  std::vector<CompressedFit> out;
  Prices formula = prices_;
  formula.corrected.clear();
  const Prices before = at_hand();
  const auto add_class = [&](const std::string& name, auto has) {
    CompressedFit& of = out.emplace_back();
    of.name = name;
    of.entry.set_operator_class(class_of(name));
    if (name.starts_with("gemm")) {
      write_coefficients(prices_.products[name == kProducts[0] ? 0 : 1], of.entry);
    } else if (const auto found = prices_.indexers.find(name); found != prices_.indexers.end()) {
      write_coefficients(found->second, of.entry);
    } else {
      write_coefficients(prices_.kernels.at(name), of.entry);
    }
    if (const auto found = prices_.corrected.find(name); found != prices_.corrected.end())
      *of.entry.mutable_corrections() = found->second.corrections();
    std::vector<Module> members;
    std::copy_if(left_out_.begin(), left_out_.end(), std::back_inserter(members), has);
    of.rows = members.size() + static_cast<std::size_t>(std::count_if(fitted_.begin(), fitted_.end(), has));
    of.left_out = relative_errors(ratios(members, prices_));
    of.formula = relative_errors(ratios(members, formula));
    of.before = relative_errors(ratios(members, before));
    of.set_errors(of.left_out);
  };
  for (const auto& [name, c] : prices_.kernels)
    add_class(name, [&kernel = name](const Module& module) { return kind_of(module.row) == kernel; });
  for (const auto& [name, c] : prices_.indexers)
    add_class(name, [&indexer = name](const Module& module) {
      return module.row.has_indexer() && indexer_of(module.row) == indexer;
    });
  if (of_blocks_) return out;
  for (const bool fp8 : {false, true})
    add_class(std::string(kProducts[fp8 ? 1 : 0]),
              [fp8](const Module& module) { return module.row.fp8_gemm == fp8; });
  return out;
}

}  // namespace

std::vector<CompressedFit> fit_compressed(const proto::HardwareProfile& profile,
                                          std::vector<CompressedRow> rows) {
  ModuleFit fit(profile);
  fit.add(std::move(rows));
  if (fit.empty()) return {};
  fit.minimise();
  fit.correct();
  return fit.report();
}

}  // namespace tpsim::calibrate
