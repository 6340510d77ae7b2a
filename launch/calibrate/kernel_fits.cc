#include "launch/calibrate/kernel_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
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

constexpr std::array<std::string_view, 6> kTables = {"gemm_perf",
                                                     "moe_perf",
                                                     "custom_allreduce_perf",
                                                     "nccl_perf",
                                                     "context_attention_perf",
                                                     "generation_attention_perf"};

// "gemm_perf" of ".../gemm_perf.csv.gz"; empty where the name is no table's.
std::string table_of_file(const fs::path& path) {
  std::string name = path.filename().string();
  for (const std::string_view end : {".gz", ".csv"}) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
  }
  return std::find(kTables.begin(), kTables.end(), name) == kTables.end() ? "" : name;
}

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

void fit_operators(const KernelTableFile& file, const std::string& source,
                   const std::function<void()>& on_class, proto::HardwareProfile& profile,
                   std::vector<KernelFit>& fits) {
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
    take(fitted.entry, std::move(fit), source, profile, fits);
  }
}

RelativeErrors errors_aside(const AttentionFit& fitted, attention::PlannedBackend& backend, bool decode,
                            const proto::HardwareProfile& profile) {
  const attention::PlanCost cost(profile, fitted.efficiency.operator_class(), attention::Residency::kHot);
  std::vector<double> ratios;
  for (const AttentionFit::Priced& priced : fitted.priced)
    if (priced.aside)
      ratios.push_back(priced.row->seconds / calibration::price(backend, cost, *priced.row, decode));
  return relative_errors(ratios);
}

void fit_attention_table(const KernelTableFile& file, const std::string& source,
                         const std::function<void()>& on_class, proto::HardwareProfile& profile,
                         std::vector<KernelFit>& fits) {
  const bool decode = file.table.starts_with("generation");
  const calibration::KernelTable table(calibration::table_file(file.folder, file.table));
  std::set<std::string> kernels;
  for (std::size_t i = 0; i < table.size(); ++i) kernels.insert(table.text(i, "kernel_source"));
  for (const std::string& kernel : kernels) {
    on_class();
    // As in launch/validation/kernel_errors.cc: the A100's rows name FlashAttention 2.
    const std::string name = kernel == "flash_attention" ? "flashinfer" : kernel;
    KernelFit fit{
        fmt::format("attention.{}.{}", name, decode ? "decode" : "extend"), file.table, 0, {}, {}, ""};
    AttentionSource rows{calibration::attention_rows(file.folder, kernel, decode, 1), /*keep_aside=*/true};
    fit.rows = rows.rows.size();
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
      continue;
    }
    const std::array<PlanCoefficients, 2> starts = {
        coefficients_of<PlanCoefficients>(profile, fit.operator_class), PlanCoefficients{}};
    const AttentionFit fitted = fit_attention(profile, name, decode, {&rows, 1}, starts);
    fit.before = errors_aside(fitted, *planned, decode, profile);
    fit.after = {fitted.efficiency.median_error(), fitted.efficiency.p90_error(), fit.before.rows};
    take(fitted.efficiency, std::move(fit), source, profile, fits);
  }
}

}  // namespace

std::vector<KernelTableFile> kernel_tables(const fs::path& given) {
  std::error_code error;
  const fs::path path = (given / "").parent_path();  // without a slash at its end
  std::vector<KernelTableFile> tables;
  if (!fs::is_directory(path, error)) {
    if (const std::string table = table_of_file(path); !table.empty() && fs::exists(path, error))
      tables.push_back({path.parent_path(), table});
    return tables;
  }
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (const std::string table = table_of_file(entry.path()); !table.empty()) names.insert(table);
  if (names.empty())
    throw_user_error("--from {}: is a folder without tables of kernels; {} are known, each .csv or .csv.gz",
                     given.string(), fmt::join(kTables, ", "));
  for (const std::string& name : names) tables.push_back({path, name});
  return tables;
}

std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile) {
  std::vector<KernelFit> fits;
  for (const KernelTableFile& file : tables) {
    const std::string source = fmt::format("{} of {}", file.table, file.folder.filename().string());
    const bool attention = file.table.ends_with("attention_perf");
    (attention ? fit_attention_table : fit_operators)(file, source, on_class, profile, fits);
  }
  return fits;
}

}  // namespace tpsim::calibrate
