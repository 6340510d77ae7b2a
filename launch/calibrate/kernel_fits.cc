#include "launch/calibrate/kernel_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "attention/planned_backend.h"
#include "attention/registry.h"
#include "launch/calibrate/attention_fit.h"
#include "launch/calibrate/fit_operators.h"
#include "launch/calibrate/mla_bmm_fit.h"
#include "launch/calibrate/mla_fit.h"
#include "launch/calibrate/mla_sources.h"
#include "launch/calibrate/sparse_fit.h"
#include "launch/kernels/attention_rows.h"
#include "launch/kernels/kernel_table.h"
#include "launch/kernels/operator_rows.h"
#include "launch/kernels/sparse_rows.h"
#include "proto/base/error.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {
namespace {

using calibration::AttentionRow;
using calibration::MlaKernel;
using calibration::OperatorRow;

void put(proto::OperatorEfficiency entry, const std::string& source, proto::HardwareProfile& profile) {
  entry.set_source(source);
  auto& entries = *profile.mutable_efficiencies();
  const auto known = std::find_if(entries.begin(), entries.end(), [&](const proto::OperatorEfficiency& of) {
    return of.operator_class() == entry.operator_class();
  });
  (known == entries.end() ? *entries.Add() : *known) = std::move(entry);
}

// Takes the class where the rows left out come nearer.
void take(const proto::OperatorEfficiency& entry, KernelFit fit, const std::string& source,
          proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  if (fit.after.rows == 0) {
    fit.reason = fmt::format("its {} rows are of too few shapes to leave some out, which would judge the fit",
                             fit.rows);
  } else if (fit.after.median < fit.before.median ||
             find_efficiency(profile, fit.operator_class) == nullptr) {
    put(entry,
        fmt::format("tpsim calibrate: {} rows of {}; the errors are those of rows left out", fit.rows,
                    source),
        profile);
  } else {
    fit.reason = "rows left out come no nearer than they are";
  }
  fits.push_back(std::move(fit));
}

void fit_operators(const KernelTableFile& file, const std::function<void()>& on_class,
                   proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  for (const std::string& name : calibration::operator_classes()) {
    if (calibration::table_of(name) != file.table) continue;
    on_class();
    const std::vector<OperatorRow> rows = calibration::operator_rows(file.folder, name, profile);
    if (rows.empty()) continue;
    KernelFit fit{name, file.table, rows.size(), {}, {}, ""};
    if (rows.size() < kLeastRows) {
      fit.reason = fmt::format("{} rows are too few, at least {} are needed", rows.size(), kLeastRows);
      fits.push_back(std::move(fit));
      continue;
    }
    const rank::OperatorCosts costs(profile);
    std::vector<double> ratios;
    for (const OperatorRow& row : rows)
      if (is_left_out(row)) ratios.push_back(row.seconds / calibration::price(costs, name, row));
    fit.before = relative_errors(ratios);
    const OperatorFit fitted = fit_operator(name, rows, profile);
    fit.after = fitted.left_out;
    take(fitted.entry, std::move(fit), file.source(), profile, fits);
  }
}

RelativeErrors errors_aside(const AttentionFit& fitted, attention::PlannedBackend& backend, bool decode,
                            const proto::HardwareProfile& profile) {
  using attention::Residency;
  const std::string& name = fitted.efficiency.operator_class();
  const attention::PlanCost hot(profile, name, Residency::kHot), cold(profile, name, Residency::kCold);
  std::vector<double> ratios;
  for (const AttentionFit::Priced& priced : fitted.priced) {
    if (!priced.aside) continue;
    const attention::PlanCost& cost = priced.row->residency == Residency::kHot ? hot : cold;
    ratios.push_back(priced.row->seconds / calibration::price(backend, cost, *priced.row, decode));
  }
  return relative_errors(ratios);
}

// What plans the kernels of backend `name`; nothing, and the reason in `fit`, where there is none.
std::unique_ptr<attention::AttentionBackend> planned_backend(const std::string& name,
                                                             const proto::HardwareProfile& profile,
                                                             std::uint32_t page_size, KernelFit& fit) {
  std::unique_ptr<attention::AttentionBackend> backend;
  try {
    backend = attention::create_attention_backend(name, profile, page_size);
    if (dynamic_cast<attention::PlannedBackend*>(backend.get()) == nullptr)
      fit.reason = name + " plans no kernels of its own";
  } catch (const UserError& error) {
    fit.reason = error.what();
  }
  if (fit.rows < kLeastRows)
    fit.reason = fmt::format("{} rows are too few, at least {} are needed", fit.rows, kLeastRows);
  return fit.reason.empty() ? std::move(backend) : nullptr;
}

void fit_attention_class(const KernelTableFile& file, const std::string& name, bool decode,
                         std::vector<AttentionRow> rows, proto::HardwareProfile& profile,
                         std::vector<KernelFit>& fits) {
  KernelFit fit{fmt::format("attention.{}.{}", name, decode ? "decode" : "extend"),
                file.table,
                rows.size(),
                {},
                {},
                ""};
  const auto backend = planned_backend(name, profile, 1, fit);
  if (backend == nullptr) {
    fits.push_back(std::move(fit));
    return;
  }
  const AttentionSource measured{std::move(rows), /*keep_aside=*/true};
  const std::array<PlanCoefficients, 2> starts = {
      coefficients_of<PlanCoefficients>(profile, fit.operator_class), PlanCoefficients{}};
  const AttentionFit fitted = fit_attention(profile, name, decode, {&measured, 1}, starts);
  fit.before = errors_aside(fitted, dynamic_cast<attention::PlannedBackend&>(*backend), decode, profile);
  fit.after = {fitted.efficiency.median_error(), fitted.efficiency.p90_error(), fit.before.rows};
  take(fitted.efficiency, std::move(fit), file.source(), profile, fits);
}

// The values of a column, each once.
std::set<std::string> values_of(const calibration::KernelTable& table, const std::string& column) {
  std::set<std::string> values;
  for (std::size_t i = 0; i < table.size(); ++i) values.insert(table.text(i, column));
  return values;
}

void fit_attention_table(const KernelTableFile& file, const std::function<void()>& on_class,
                         proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  const bool decode = file.table.starts_with("generation");
  for (const std::string& kernel : values_of(calibration::KernelTable(file.path()), "kernel_source")) {
    on_class();
    fit_attention_class(file, calibration::attention_source_backend(kernel), decode,
                        calibration::attention_rows(file.folder, kernel, decode, 1), profile, fits);
  }
}

void fit_own_attention(const KernelTableFile& file, const std::function<void()>& on_class,
                       proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  for (const std::string& name : values_of(calibration::KernelTable(file.path()), "kernel")) {
    if (name == "flashinfer_ragged") continue;  // measured_rows() puts it to flashinfer's
    for (const bool decode : {false, true}) {
      on_class();
      std::vector<AttentionRow> rows = calibration::measured_rows(file.path(), name, decode);
      if (!rows.empty()) fit_attention_class(file, name, decode, std::move(rows), profile, fits);
    }
  }
}

void fit_mla_class(const KernelTableFile& file, const std::string& name, MlaKernel kernel,
                   std::vector<AttentionRow> rows, bool parted, proto::HardwareProfile& profile,
                   std::vector<KernelFit>& fits) {
  KernelFit fit{fmt::format("attention.{}.{}", name, calibration::class_suffix(kernel)),
                file.table,
                rows.size(),
                {},
                {},
                ""};
  if (planned_backend(name, profile, kMlaPageSize, fit) == nullptr) {
    fits.push_back(std::move(fit));
    return;
  }
  const MlaSource measured{std::move(rows), parted};
  const MlaFit fitted = fit_mla(profile, name, kernel, {&measured, 1});
  fit.before = errors_left_out(profile, name, kernel, fitted);
  fit.after = fitted.left_out;
  take(fitted.entry, std::move(fit), file.source(), profile, fits);
}

void fit_mla_table(const KernelTableFile& file, const std::function<void()>& on_class,
                   proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  const bool decode = file.table.starts_with("generation");
  for (const std::string& source : values_of(calibration::KernelTable(file.path()), "kernel_source")) {
    on_class();
    const auto [backend, kernel] = calibration::mla_source_kernel(source, decode);
    fit_mla_class(file, backend, kernel, calibration::mla_rows(file.folder, source, kernel), false, profile,
                  fits);
  }
}

// Expanded prefills, by FlashAttention 3 where it runs and else FlashInfer; the other modules' kernels are
// timed alone elsewhere.
void fit_mla_modules(const KernelTableFile& file, const std::function<void()>& on_class,
                     proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  const std::string expanded = "FLASH_ATTN";
  for (const std::string& source : values_of(calibration::KernelTable(file.path()), "kernel_source")) {
    if (source != expanded) {
      fits.push_back({source,
                      file.table,
                      0,
                      {},
                      {},
                      "modules of this kernel are not taken apart: context_mla_perf times it alone"});
      continue;
    }
    on_class();
    fit_mla_class(file, profile.architecture() == "hopper" ? "fa3" : "flashinfer", MlaKernel::kPrefill,
                  module_rows(file.folder, source, MlaKernel::kPrefill, profile), false, profile, fits);
  }
}

void fit_mla_beside(const KernelTableFile& file, const std::function<void()>& on_class,
                    proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  const std::string known = "fa3";
  const MlaKernel kernel =
      file.table.starts_with("wideep_generation") ? MlaKernel::kDecode : MlaKernel::kPrefill;
  const std::set<std::string> sources = values_of(calibration::KernelTable(file.path()), "kernel_source");
  const bool comparable = sources.contains(known) &&
                          find_efficiency(profile, fmt::format("attention.{}.{}", known,
                                                               calibration::class_suffix(kernel))) != nullptr;
  for (const std::string& source : sources) {
    if (source == known) continue;
    on_class();
    if (comparable) {
      fit_mla_class(file, source, kernel, rows_beside(file.folder, source, known, kernel, profile), false,
                    profile, fits);
    } else {
      fits.push_back(
          {fmt::format("attention.{}.{}", source, calibration::class_suffix(kernel)),
           file.table,
           0,
           {},
           {},
           "its modules tell a kernel only beside those of fa3, measured in the same table and with "
           "a price of its own"});
    }
  }
}

void fit_own_mla(const KernelTableFile& file, const std::function<void()>& on_class,
                 proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  const calibration::KernelTable table(file.path());
  for (const std::string& name : values_of(table, "kernel")) {
    for (const MlaKernel kernel : {MlaKernel::kDecode, MlaKernel::kExtend, MlaKernel::kPrefill}) {
      std::vector<AttentionRow> rows = calibration::measured_mla_rows(file.path(), name, kernel);
      if (rows.empty()) continue;
      on_class();
      fit_mla_class(file, name, kernel, std::move(rows), table.has("part"), profile, fits);
    }
  }
}

void fit_mla_products(const KernelTableFile& file, const std::function<void()>& on_class,
                      proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  for (const bool fp8 : {false, true}) {
    on_class();
    const std::vector<BmmRow> rows = bmm_rows(file.folder, fp8);
    if (rows.empty()) continue;
    KernelFit fit{fp8 ? "mla_bmm_fp8" : "mla_bmm", file.table, rows.size(), {}, {}, ""};
    if (rows.size() < kLeastRows) {
      fit.reason = fmt::format("{} rows are too few, at least {} are needed", rows.size(), kLeastRows);
      fits.push_back(std::move(fit));
      continue;
    }
    const BmmFit fitted = fit_bmm(rows, fp8, profile);
    fit.before = fitted.before;
    fit.after = fitted.left_out;
    take(fitted.entry, std::move(fit), file.source(), profile, fits);
  }
}

void fit_sparse_table(const KernelTableFile& file, const std::function<void()>& on_class,
                      proto::HardwareProfile& profile, std::vector<KernelFit>& fits) {
  on_class();
  const bool decode = file.table.starts_with("dsa_generation");
  std::vector<calibration::SparseRow> rows = calibration::sparse_rows(file.folder, decode);
  const std::size_t size = rows.size();
  SparseFit fitted;
  if (size >= kLeastRows) fitted = fit_sparse(profile, decode, std::move(rows));
  if (fitted.classes.empty())
    fits.push_back({"attention.nsa",
                    file.table,
                    size,
                    {},
                    {},
                    fmt::format("{} rows tell nothing: at least {} are needed that take longer than the host",
                                size, kLeastRows)});
  for (const SparseFit::Class& of : fitted.classes)
    take(of.entry, {of.entry.operator_class(), file.table, of.rows, of.before, of.left_out, ""},
         file.source(), profile, fits);
}

using FitTable = void (*)(const KernelTableFile& file, const std::function<void()>& on_class,
                          proto::HardwareProfile& profile, std::vector<KernelFit>& fits);

FitTable fit_of(const std::string& table) {
  if (table == kOwnAttention) return fit_own_attention;
  if (table == kOwnMla) return fit_own_mla;
  if (table == "mla_bmm_perf") return fit_mla_products;
  if (table == "mla_context_module_perf") return fit_mla_modules;
  if (table.starts_with("dsa_")) return fit_sparse_table;
  if (table.starts_with("wideep_")) return fit_mla_beside;
  if (table.ends_with("attention_perf")) return fit_attention_table;
  return table.ends_with("mla_perf") ? fit_mla_table : fit_operators;
}

}  // namespace

std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile) {
  std::for_each(tables.begin(), tables.end(), check_table);
  std::vector<KernelFit> fits;
  for (const KernelTableFile& file : tables) fit_of(file.table)(file, on_class, profile, fits);
  return fits;
}

}  // namespace tpsim::calibrate
