// Fits the coefficients of MLA kernels (attention/plan_cost.h) to measured rows.
//
//   fit_mla HARDWARE_JSON BACKEND KERNEL SOURCES…
//
// KERNEL: mla_decode, mla_extend (absorbed) or mla_prefill (expanded). SOURCES, one or more of
//   --table FOLDER KERNEL_SOURCE    generation_mla_perf or context_mla_perf
//   --module FOLDER KERNEL_SOURCE   mla_*_module_perf, less the prices of the projections and small kernels
//   that a row
//                                   times with it, where attention is the greater part
//   --beside FOLDER OTHER           wideep_*_mla_perf, modules of SGLang that were measured with this backend
//   and with
//                                   OTHER, whose kernel is fitted: their times differ by what the kernels
//                                   differ by
//   --own CSV                       a file of measure_mla.py
//   --ragged CSV                    a file of measure_ragged_mla.py, which says itself what is left out
// One row in five, by a hash of its shape, is left out of the fit; median_error is theirs. Prints the
// OperatorEfficiency object as a JSON line, and what it missed to stderr.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <utility>

#include "attention/registry.h"
#include "launch/calibrate/coordinate_search.h"
#include "launch/calibrate/corrections.h"
#include "launch/kernels/attention_rows.h"
#include "rank/model/hardware.h"
#include "rank/model/op_cost.h"
#include "tests/calibration/fit_files.h"

namespace tpsim::calibration {
namespace {

using attention::KernelCost;
using attention::PlanCost;
using attention::Residency;

struct Planned {
  AttentionRow row;
  double weight = 1;
  attention::DecodePlan decode;
  attention::ExtendPlan extend;
  bool held_out = false;
  bool ragged = false;
};

class Fit {
 public:
  Fit(const proto::HardwareProfile& profile, attention::PlannedBackend& backend, MlaKernel kernel)
      : profile_(profile), backend_(backend), kernel_(kernel) {}

  // `parted`: the rows say themselves whether they are held out.
  void add(const std::vector<AttentionRow>& rows, bool parted = false) {
    const bool decode = kernel_ == MlaKernel::kDecode;
    for (const AttentionRow& row : rows) {
      with_metadata(row, decode, [&](const attention::ForwardMetadata& metadata) {
        backend_.init_forward_metadata(metadata);
        Planned p{row, 1.0 / double(rows.size()), {}, {}, parted ? row.held : held_out(row), parted};
        if (decode) {
          p.decode = backend_.decode_plan(row.layer);
        } else {
          p.extend = backend_.extend_plan(row.layer);
        }
        rows_.push_back(std::move(p));
      });
    }
  }
  std::size_t size() const { return rows_.size(); }

  void minimise(PlanCoefficients& c) {
    std::vector<double*> values;
    std::vector<double> low, high;
    const auto vary = [&](double& value, double least, double most) {
      values.push_back(&value);
      low.push_back(least);
      high.push_back(most);
    };
    vary(c.compute, 0.02, 1);
    vary(c.memory, 0.05, 1);
    vary(c.fixed_seconds, 5e-7, 3e-4);
    vary(c.block_seconds, 1e-8, 1e-4);
    vary(c.overlap, 1e-3, 1);
    vary(c.block_compute, 0.3, 8);
    vary(c.merge_seconds, 1e-7, 1e-4);
    if (kernel_ == MlaKernel::kDecode) {
      vary(c.block_memory, 0.2, 12);
      c.merge_part_seconds = 1e-8;
      vary(c.merge_part_seconds, 1e-9, 1e-6);
      if (any([](const Planned& p) { return !p.decode.tensor_cores; })) vary(c.vector_compute, 0.002, 1);
    } else {
      vary(c.tail, 1e-3, 1);
    }
    if (any([](const Planned& p) { return p.row.residency == Residency::kHot; })) vary(c.l2_memory, 1, 10);
    if (any([](const Planned& p) { return p.decode.widens_kv || p.extend.widens_kv; }))
      vary(c.gather, 0.05, 2);
    if (any([](const Planned& p) { return p.row.layer.fp8_kv(); })) {
      c.fp8_seconds = 5e-7;
      vary(c.fp8_seconds, 1e-8, 5e-5);
    }
    if (any([](const Planned& p) { return p.row.layer.q_bytes == 1; })) vary(c.fp8_compute, 0.1, 2);
    if (any([](const Planned& p) {
          return p.row.layer.q_bytes == 2 && p.row.layer.kv_bytes() < 2 && !p.decode.widens_kv &&
                 !p.extend.widens_kv;
        })) {
      vary(c.fp8_kv, 0.2, 2);
      vary(c.fp8_convert, 0.05, 3);
    }
    const auto loss = [&] {
      const PlanCost hot(profile_, c, Residency::kHot);
      const PlanCost cold(profile_, c, Residency::kCold);
      double sum = 0;
      for (Planned& p : rows_) {
        if (!p.held_out)
          sum += p.weight * std::min(0.7, std::abs(std::log(price(p, hot, cold) / p.row.seconds)));
      }
      return sum;
    };
    for (int round = 0; round < 3; ++round) calibrate::minimise(values, low, high, loss);
  }

  // What the rows of the fit say beyond the formula.
  std::vector<proto::CorrectionSurface> correct(const PlanCoefficients& c) {
    std::vector<calibrate::SurfaceRow> rows;
    const PlanCost hot(profile_, c, Residency::kHot);
    const PlanCost cold(profile_, c, Residency::kCold);
    for (Planned& p : rows_) {
      if (p.held_out) continue;
      const PlanCost& model = p.row.residency == Residency::kHot ? hot : cold;
      const double own = price(p, hot, cold) - p.row.rest_seconds;
      const double ratio = (p.row.seconds - p.row.rest_seconds) / own;
      if (ratio < 0.2 || ratio > 5) continue;  // the rest was off
      const auto features = kernel_ == MlaKernel::kDecode ? model.features(p.decode, p.row.layer).values()
                                                          : model.features(p.extend, p.row.layer).values();
      rows.push_back(
          {{features.begin(), features.end()}, ratio, p.weight * own / (own + p.row.rest_seconds)});
    }
    return calibrate::choose_corrections(std::move(rows), kPlanFeatures, stages());
  }

  // Median and 90th percentile of the relative error of the rows that `which` accepts.
  template <typename Which>
  std::pair<double, double> errors(const proto::OperatorEfficiency& entry, Which which) {
    const auto [hot, cold] = models(entry);
    std::vector<double> errors;
    for (Planned& p : rows_)
      if (which(p)) errors.push_back(std::abs(price(p, hot, cold) / p.row.seconds - 1));
    if (errors.empty()) return {-1, -1};
    std::sort(errors.begin(), errors.end());
    return {errors[errors.size() / 2], errors[errors.size() * 9 / 10]};
  }

  void dump(const proto::OperatorEfficiency& entry, const std::string& path) {
    const auto [hot, cold] = models(entry);
    std::ofstream out(path);
    out << "heads,kv,batch,length,held_out,rest_us,us,predicted_us\n";
    for (Planned& p : rows_)
      out << p.row.layer.num_q_heads << "," << p.row.layer.kv_bytes() << "," << p.row.lengths.size() << ","
          << p.row.lengths.front() << "," << p.held_out << "," << p.row.rest_seconds * 1e6 << ","
          << p.row.seconds * 1e6 << "," << price(p, hot, cold) * 1e6 << "\n";
  }

 private:
  std::pair<PlanCost, PlanCost> models(const proto::OperatorEfficiency& entry) const {
    proto::HardwareProfile with;
    *with.add_efficiencies() = entry;
    const auto c = coefficients_of<PlanCoefficients>(with, entry.operator_class());
    const Corrections corrections(&entry, kPlanFeatures);
    return {PlanCost(profile_, c, Residency::kHot, corrections),
            PlanCost(profile_, c, Residency::kCold, corrections)};
  }
  // A decode is told by its batch, an extend by its tiles: how long one is, and how many a multiprocessor
  // has, so that a few new tokens behind a prefix, which no table has, are not taken for a short prompt.
  // Cold and hot caches, ragged batches and prefixes come second, where there are such rows.
  std::vector<std::vector<calibrate::GridWish>> stages() const {
    std::vector<calibrate::GridWish> grids;
    for (const auto& [points, heads] :
         {std::pair<std::size_t, std::size_t>{2, 2}, {4, 2}, {4, 5}, {6, 3}, {6, 5}, {8, 3}}) {
      if (kernel_ == MlaKernel::kDecode) {
        grids.push_back({{"requests", points}, {"tokens", points}, {"group", heads}, {"element_bytes", 3}});
      } else {
        const char* per_rank = kernel_ == MlaKernel::kExtend ? "group" : "kv_heads";
        grids.push_back({{"blocks", points}, {"part", points}, {per_rank, heads}, {"element_bytes", 3}});
      }
    }
    if (kernel_ == MlaKernel::kDecode)
      return {grids,
              {{{"l2_fill", 2}, {"spread", 3}, {"requests", 3}},
               {{"l2_fill", 2}, {"requests", 4}, {"tokens", 4}, {"group", 2}},
               {{"l2_fill", 2}, {"requests", 5}, {"tokens", 4}, {"group", 3}, {"spread", 2}}},
              {{{"l2_fill", 2}, {"part", 4}, {"blocks", 4}}, {{"part", 5}, {"group", 3}}}};
    return {grids,
            {{{"prefix", 4}, {"tokens", 4}}, {{"prefix", 3}, {"rows", 3}, {"requests", 3}, {"spread", 2}}},
            {{{"requests", 3}, {"spread", 3}, {"l2_fill", 2}}}};
  }
  template <typename Which>
  bool any(Which which) const {
    return std::any_of(rows_.begin(), rows_.end(), which);
  }
  double price(Planned& p, const PlanCost& hot, const PlanCost& cold) {
    const PlanCost& model = p.row.residency == Residency::kHot ? hot : cold;
    return p.row.rest_seconds + (kernel_ == MlaKernel::kDecode
                                     ? backend_.decode_cost(model, p.decode, p.row.layer).seconds
                                     : backend_.extend_cost(model, p.extend, p.row.layer).seconds);
  }

  const proto::HardwareProfile& profile_;
  attention::PlannedBackend& backend_;
  MlaKernel kernel_;
  std::vector<Planned> rows_;
};

// The projections of DeepSeek V3 around a layer's attention, its norms, rotation and copies.
double module_rest(const rank::OperatorCosts& costs, const attention::LayerShape& layer, double tokens) {
  const std::uint32_t heads = layer.num_q_heads;
  KernelCost rest = costs.gemm(tokens, 1536 + 576, 7168);
  rest += costs.gemm(tokens, std::uint64_t{heads} * 192, 1536);
  rest += costs.gemm(tokens, std::uint64_t{heads} * 256, 512);
  rest += costs.gemm(tokens, 7168, std::uint64_t{heads} * 128);
  rest += costs.elementwise(tokens * (2 * 1536 + 4 * 576) * 2);
  rest += costs.elementwise(tokens * heads * 4 * 192);
  rest += costs.elementwise(tokens * heads * 4 * 256);
  return rest.seconds;
}

// Rows of `name` in wideep_*_mla_perf for whose shape there is one of `known`, too: the rest of the module is
// what that took beyond its kernel's price.
std::vector<AttentionRow> beside(const std::filesystem::path& folder, const std::string& name,
                                 const std::string& known, MlaKernel kernel, const std::string& gpu) {
  const bool decode = kernel == MlaKernel::kDecode;
  const KernelTable table(folder /
                          (decode ? "wideep_generation_mla_perf.csv.gz" : "wideep_context_mla_perf.csv.gz"));
  const proto::HardwareProfile profile = rank::load_hardware(gpu);
  auto backend = attention::create_attention_backend(known, profile, 64);
  auto& planned = dynamic_cast<attention::PlannedBackend&>(*backend);
  const PlanCost cost(profile, "attention." + known + "." + class_suffix(kernel), Residency::kHot);
  std::map<std::string, double> rest;
  std::vector<AttentionRow> rows;
  for (const std::string& source : {known, name}) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table.text(i, "kernel_source") != source) continue;
      AttentionRow row;
      row.layer = mla_layer(kernel, static_cast<std::uint32_t>(table.number(i, "num_heads")));
      const auto length =
          static_cast<std::uint32_t>(table.number(i, "isl") + (decode ? table.number(i, "step") : 0));
      row.lengths.assign(static_cast<std::size_t>(table.number(i, "batch_size")), length);
      if (!decode) row.prefixes.assign(row.lengths.size(), 0);
      row.seconds = table.number(i, "latency_ms") / 1e3;
      const std::string shape = std::to_string(row.layer.num_q_heads) + "," +
                                std::to_string(row.lengths.size()) + "," + std::to_string(length);
      with_metadata(row, decode, [&](const attention::ForwardMetadata& metadata) {
        if (source == name) {
          const auto found = rest.find(shape);
          if (found == rest.end()) return;
          row.rest_seconds = found->second;
          rows.push_back(row);
          return;
        }
        planned.init_forward_metadata(metadata);
        const KernelCost own = decode ? planned.decode_cost(cost, planned.decode_plan(row.layer), row.layer)
                                      : planned.extend_cost(cost, planned.extend_plan(row.layer), row.layer);
        rest[shape] = row.seconds - own.seconds;
      });
    }
  }
  // Only where the kernel is a good part of the module.
  std::erase_if(rows, [](const AttentionRow& row) {
    // A prefill of few tokens, eager, takes the host's time.
    constexpr double kFewTokens = 1024;
    const bool hosts = !row.prefixes.empty() && double(row.lengths.size()) * row.lengths.front() < kFewTokens;
    return hosts || row.rest_seconds > 0.6 * row.seconds || row.rest_seconds < 0;
  });
  return rows;
}

int run(std::vector<std::string> words) {
  std::string table, source, own, ragged, module, module_source, wideep, known;
  const auto option = [&](const std::string& name, std::vector<std::string*> values) {
    const auto at = std::find(words.begin(), words.end(), name);
    if (at == words.end() || words.end() - at <= static_cast<std::ptrdiff_t>(values.size())) return;
    for (std::size_t i = 0; i < values.size(); ++i) *values[i] = at[static_cast<std::ptrdiff_t>(i) + 1];
    words.erase(at, at + static_cast<std::ptrdiff_t>(values.size()) + 1);
  };
  option("--table", {&table, &source});
  option("--own", {&own});
  option("--ragged", {&ragged});
  option("--module", {&module, &module_source});
  option("--beside", {&wideep, &known});
  if (words.size() != 3 ||
      (table.empty() && own.empty() && ragged.empty() && module.empty() && wideep.empty())) {
    std::cerr << "usage: fit_mla HARDWARE_JSON BACKEND KERNEL [--table FOLDER KERNEL_SOURCE] "
                 "[--module FOLDER KERNEL_SOURCE] [--beside FOLDER OTHER] [--own CSV] [--ragged CSV]\n";
    return 2;
  }
  MlaKernel kernel = MlaKernel::kDecode;
  for (const MlaKernel k : {MlaKernel::kDecode, MlaKernel::kExtend, MlaKernel::kPrefill})
    if (words[2] == class_suffix(k)) kernel = k;
  const auto read_in = read_profile(words[0]);
  if (!read_in) return 2;
  const proto::HardwareProfile& profile = *read_in;
  auto backend = attention::create_attention_backend(words[1], profile, 64);
  Fit fit(profile, dynamic_cast<attention::PlannedBackend&>(*backend), kernel);
  std::string from;
  const bool decode = kernel == MlaKernel::kDecode;
  if (!table.empty()) {
    const auto rows = mla_rows(table, source, kernel);
    fit.add(rows);
    from = std::string(kernel == MlaKernel::kDecode ? "generation" : "context") + "_mla_perf of " +
           std::filesystem::path(table).filename().string() + ", " + source + ", " +
           std::to_string(rows.size()) + " rows (AIConfigurator, Apache-2.0)";
  }
  if (!module.empty()) {
    const rank::OperatorCosts costs(profile);
    auto rows = mla_module_rows(
        module, module_source, kernel,
        [&](const attention::LayerShape& layer, double tokens) { return module_rest(costs, layer, tokens); });
    std::erase_if(rows, [](const AttentionRow& row) { return row.rest_seconds > 0.5 * row.seconds; });
    fit.add(rows);
    from += std::string(from.empty() ? "" : "; ") +
            (kernel == MlaKernel::kDecode ? "mla_generation" : "mla_context") + "_module_perf of " +
            std::filesystem::path(module).filename().string() + ", " + module_source + ", " +
            std::to_string(rows.size()) + " rows, less their projections (AIConfigurator, Apache-2.0)";
  }
  if (!wideep.empty()) {
    const auto rows = beside(wideep, words[1], known, kernel, profile.name());
    fit.add(rows);
    from += std::string(from.empty() ? "" : "; ") + (decode ? "wideep_generation" : "wideep_context") +
            "_mla_perf of " + std::filesystem::path(wideep).filename().string() + ", " +
            std::to_string(rows.size()) + " rows beside those of " + known + " (AIConfigurator, Apache-2.0)";
  }
  if (!own.empty()) {
    const auto rows = measured_mla_rows(own, words[1], kernel);
    fit.add(rows);
    from += (from.empty() ? "" : "; ") + std::to_string(rows.size()) +
            " rows of tests/calibration/measured/" + std::filesystem::path(own).filename().string();
  }
  if (!ragged.empty()) {
    const auto rows = measured_mla_rows(ragged, words[1], kernel);
    fit.add(rows, true);
    from += (from.empty() ? "" : "; ") + std::to_string(rows.size()) +
            " ragged rows of tests/calibration/measured/" + std::filesystem::path(ragged).filename().string();
  }
  if (fit.size() == 0) {
    std::cerr << "no rows\n";
    return 1;
  }
  PlanCoefficients c;
  fit.minimise(c);
  const std::string operator_class = "attention." + words[1] + "." + words[2];
  proto::OperatorEfficiency entry;
  entry.set_operator_class(operator_class);
  write_coefficients(c, entry);
  const auto left_out = [](const Planned& p) { return p.held_out; };
  const auto fitted = [](const Planned& p) { return !p.held_out; };
  const auto [alone, alone_p90] = fit.errors(entry, left_out);
  const std::vector<proto::CorrectionSurface> corrections = fit.correct(c);
  int factors = 0;
  for (const proto::CorrectionSurface& surface : corrections) {
    *entry.add_corrections() = surface;
    factors += surface.factors_size();
  }
  const auto [median, p90] = fit.errors(entry, left_out);
  const auto [own_median, own_p90] = fit.errors(entry, fitted);
  print_entry(operator_class, c, median, from + "; the errors are those of rows left out of the fit", p90,
              corrections);
  std::fprintf(stderr,
               "%s %s: %zu rows, left out: median %.1f %%, p90 %.1f %% (formula alone %.1f %%, %.1f %%); "
               "fitted: %.1f %%, %.1f %%; %d factors\n",
               profile.name().c_str(), operator_class.c_str(), fit.size(), 100 * median, 100 * p90,
               100 * alone, 100 * alone_p90, 100 * own_median, 100 * own_p90, factors);
  for (const double kv : {2.0, 1.0}) {
    const auto [m, n] =
        fit.errors(entry, [&](const Planned& p) { return p.held_out && p.row.layer.kv_bytes() == kv; });
    if (m >= 0)
      std::fprintf(stderr, "   kv of %g bytes: median %.1f %%, p90 %.1f %%\n", kv, 100 * m, 100 * n);
  }
  if (!ragged.empty()) {
    const auto [m, n] = fit.errors(entry, [&](const Planned& p) { return p.held_out && p.ragged; });
    std::fprintf(stderr, "   ragged: median %.1f %%, p90 %.1f %%\n", 100 * m, 100 * n);
  }
  if (const char* path = std::getenv("FIT_DUMP")) fit.dump(entry, path);
  return 0;
}

}  // namespace
}  // namespace tpsim::calibration

int main(int argc, char** argv) { return tpsim::calibration::run({argv + 1, argv + argc}); }
