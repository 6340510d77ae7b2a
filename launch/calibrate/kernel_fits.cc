#include "launch/calibrate/kernel_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "attention/planned_backend.h"
#include "attention/registry.h"
#include "launch/calibrate/attention_fit.h"
#include "launch/calibrate/fit_operators.h"
#include "launch/kernels/attention_rows.h"
#include "launch/kernels/kernel_table.h"
#include "launch/kernels/operator_rows.h"
#include "proto/base/error.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {
namespace {

namespace fs = std::filesystem;
using calibration::AttentionRow;
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
  if (fit.after.median < fit.before.median || find_efficiency(profile, fit.operator_class) == nullptr) {
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

void fit_attention_class(const KernelTableFile& file, const std::string& name, bool decode,
                         std::vector<AttentionRow> rows, proto::HardwareProfile& profile,
                         std::vector<KernelFit>& fits) {
  KernelFit fit{fmt::format("attention.{}.{}", name, decode ? "decode" : "extend"),
                file.table,
                rows.size(),
                {},
                {},
                ""};
  std::unique_ptr<attention::AttentionBackend> backend;
  try {
    backend = attention::create_attention_backend(name, profile, 1);
  } catch (const UserError& error) {
    fit.reason = error.what();
  }
  auto* const planned = dynamic_cast<attention::PlannedBackend*>(backend.get());
  if (backend != nullptr && planned == nullptr) fit.reason = name + " plans no kernels of its own";
  if (fit.rows < kLeastRows)
    fit.reason = fmt::format("{} rows are too few, at least {} are needed", fit.rows, kLeastRows);
  if (!fit.reason.empty()) {
    fits.push_back(std::move(fit));
    return;
  }
  const AttentionSource measured{std::move(rows), /*keep_aside=*/true};
  const std::array<PlanCoefficients, 2> starts = {
      coefficients_of<PlanCoefficients>(profile, fit.operator_class), PlanCoefficients{}};
  const AttentionFit fitted = fit_attention(profile, name, decode, {&measured, 1}, starts);
  fit.before = errors_aside(fitted, *planned, decode, profile);
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
    // As in launch/validation/kernel_errors.cc: the A100's rows name FlashAttention 2.
    const std::string name = kernel == "flash_attention" ? "flashinfer" : kernel;
    fit_attention_class(file, name, decode, calibration::attention_rows(file.folder, kernel, decode, 1),
                        profile, fits);
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

}  // namespace

std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile) {
  std::for_each(tables.begin(), tables.end(), check_table);
  std::vector<KernelFit> fits;
  for (const KernelTableFile& file : tables) {
    auto* const fit = file.table == kOwnAttention              ? fit_own_attention
                      : file.table.ends_with("attention_perf") ? fit_attention_table
                                                               : fit_operators;
    fit(file, on_class, profile, fits);
  }
  return fits;
}

}  // namespace tpsim::calibrate
