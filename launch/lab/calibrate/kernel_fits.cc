#include "launch/lab/calibrate/kernel_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/calibrate/attention_fit.h"
#include "launch/lab/calibrate/fit_operators.h"
#include "launch/lab/calibrate/mla_bmm_fit.h"
#include "launch/lab/calibrate/mla_sources.h"
#include "launch/lab/calibrate/sparse_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "launch/lab/kernels/operator_rows.h"
#include "launch/lab/kernels/sparse_rows.h"
#include "proto/base/error.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {
namespace {

using kernels::AttentionRow;
using Kernel = kernels::AttentionKernel;

constexpr Kernel kMlaKernels[] = {Kernel::kMlaDecode, Kernel::kMlaExtend, Kernel::kMlaPrefill};

std::string class_of(const std::string& backend, Kernel kernel) {
  return fmt::format("attention.{}.{}", backend, kernels::class_suffix(kernel));
}

// Fits one table's classes.
class TableFit {
 public:
  TableFit(const KernelTableFile& file, const std::function<void()>& on_class,
           proto::HardwareProfile& profile, std::vector<KernelFit>& fits)
      : file_(file), on_class_(on_class), profile_(profile), fits_(fits) {}

  void operators();
  void attention();
  void own_attention();
  void mla();
  void mla_modules();
  void mla_beside();
  void own_mla();
  void mla_products();
  void sparse();

 private:
  KernelFit begin(const std::string& operator_class, std::size_t rows) const {
    return {operator_class, file_.table, rows, {}, {}, ""};
  }
  void refuse(KernelFit fit, const std::string& reason) {
    fit.reason = reason;
    fits_.push_back(std::move(fit));
  }
  // Whether there are too few rows, which it then says.
  bool too_few(const KernelFit& fit) {
    if (fit.rows >= kLeastRows) return false;
    refuse(fit, fmt::format("{} rows are too few, at least {} are needed", fit.rows, kLeastRows));
    return true;
  }
  void take(proto::OperatorEfficiency entry, KernelFit fit);
  void attention_class(const std::string& backend, Kernel kernel, std::vector<AttentionRow> rows,
                       bool parted = false);
  kernels::KernelTable table() const { return kernels::KernelTable(file_.path()); }
  bool decode() const { return file_.table.find("generation") != std::string::npos; }

  const KernelTableFile& file_;
  const std::function<void()>& on_class_;
  proto::HardwareProfile& profile_;
  std::vector<KernelFit>& fits_;
};

// Takes the class where the rows left out come nearer.
void TableFit::take(proto::OperatorEfficiency entry, KernelFit fit) {
  auto& entries = *profile_.mutable_efficiencies();
  const auto known = std::find_if(entries.begin(), entries.end(), [&](const proto::OperatorEfficiency& of) {
    return of.operator_class() == fit.operator_class;
  });
  if (fit.after.rows == 0) {
    fit.reason = fmt::format("its {} rows are of too few shapes to leave some out, which would judge the fit",
                             fit.rows);
  } else if (fit.after.median < fit.before.median || known == entries.end()) {
    entry.set_source(fmt::format("tpsim calibrate: {} rows of {}; the errors are those of rows left out",
                                 fit.rows, file_.source()));
    (known == entries.end() ? *entries.Add() : *known) = std::move(entry);
  } else {
    fit.reason = "rows left out come no nearer than they are";
  }
  fits_.push_back(std::move(fit));
}

void TableFit::operators() {
  for (const std::string& name : kernels::operator_classes()) {
    if (kernels::table_of(name) != file_.table) continue;
    on_class_();
    const std::vector<kernels::OperatorRow> rows = kernels::operator_rows(file_.folder, name, profile_);
    KernelFit fit = begin(name, rows.size());
    if (rows.empty() || too_few(fit)) continue;
    const rank::OperatorCosts costs(profile_);
    std::vector<double> ratios;
    for (const kernels::OperatorRow& row : rows)
      if (is_left_out(row)) ratios.push_back(row.seconds / kernels::price(costs, name, row));
    fit.before = relative_errors(ratios);
    const OperatorFit fitted = fit_operator(name, rows, profile_);
    fit.after = fitted.left_out;
    take(fitted.entry, std::move(fit));
  }
}

void TableFit::attention_class(const std::string& backend, Kernel kernel, std::vector<AttentionRow> rows,
                               bool parted) {
  KernelFit fit = begin(class_of(backend, kernel), rows.size());
  if (too_few(fit)) return;
  try {
    const auto made = attention::create_attention_backend(backend, profile_, kernels::page_size_of(kernel));
    if (dynamic_cast<attention::PlannedBackend*>(made.get()) == nullptr)
      return refuse(std::move(fit), backend + " plans no kernels of its own");
  } catch (const UserError& error) {
    return refuse(std::move(fit), error.what());
  }
  std::vector<PlanCoefficients> starts(1);
  if (!kernels::is_mla(kernel))
    starts.insert(starts.begin(), coefficients_of<PlanCoefficients>(profile_, fit.operator_class));
  const AttentionSource measured{std::move(rows), parted};
  const AttentionFit fitted = fit_attention(profile_, backend, kernel, {&measured, 1}, starts);
  fit.before = errors_left_out(profile_, backend, kernel, fitted);
  fit.after = fitted.left_out;
  take(fitted.entry, std::move(fit));
}

void TableFit::attention() {
  for (const std::string& source : table().values("kernel_source")) {
    on_class_();
    const auto [backend, kernel] = kernels::timed_kernel(source, /*mla=*/false, decode());
    attention_class(backend, kernel, kernels::attention_rows(file_.folder, source, kernel));
  }
}

void TableFit::mla() {
  for (const std::string& source : table().values("kernel_source")) {
    on_class_();
    const auto [backend, kernel] = kernels::timed_kernel(source, /*mla=*/true, decode());
    attention_class(backend, kernel, kernels::attention_rows(file_.folder, source, kernel));
  }
}

void TableFit::own_attention() {
  for (const std::string& name : table().values("kernel")) {
    if (name == "flashinfer_ragged") continue;  // measured_rows() puts it to flashinfer's
    for (const Kernel kernel : {Kernel::kExtend, Kernel::kDecode}) {
      on_class_();
      std::vector<AttentionRow> rows = kernels::measured_rows(file_.path(), name, kernel);
      if (!rows.empty()) attention_class(name, kernel, std::move(rows));
    }
  }
}

void TableFit::own_mla() {
  const kernels::KernelTable rows_of = table();
  for (const std::string& name : rows_of.values("kernel")) {
    for (const Kernel kernel : kMlaKernels) {
      std::vector<AttentionRow> rows = kernels::measured_rows(file_.path(), name, kernel);
      if (rows.empty()) continue;
      on_class_();
      attention_class(name, kernel, std::move(rows), rows_of.has("part"));
    }
  }
}

// Expanded prefills, by FlashAttention 3 where it runs and else FlashInfer; the other modules' kernels are
// timed alone elsewhere.
void TableFit::mla_modules() {
  for (const std::string& source : table().values("kernel_source")) {
    if (source != "FLASH_ATTN") {
      refuse(begin(source, 0), "modules of this kernel are not taken apart: context_mla_perf times it alone");
      continue;
    }
    on_class_();
    attention_class(profile_.architecture() == "hopper" ? "fa3" : "flashinfer", Kernel::kMlaPrefill,
                    module_rows(file_.folder, source, Kernel::kMlaPrefill, profile_));
  }
}

void TableFit::mla_beside() {
  const std::string known = "fa3";
  const Kernel kernel = decode() ? Kernel::kMlaDecode : Kernel::kMlaPrefill;
  const std::set<std::string> sources = table().values("kernel_source");
  const bool comparable =
      sources.contains(known) && find_efficiency(profile_, class_of(known, kernel)) != nullptr;
  for (const std::string& source : sources) {
    if (source == known) continue;
    on_class_();
    if (comparable) {
      attention_class(source, kernel, rows_beside(file_.folder, source, known, kernel, profile_));
    } else {
      refuse(begin(class_of(source, kernel), 0),
             "its modules tell a kernel only beside those of fa3, measured in the same table and with a "
             "price of its own");
    }
  }
}

void TableFit::mla_products() {
  for (const bool fp8 : {false, true}) {
    on_class_();
    const std::vector<BmmRow> rows = bmm_rows(file_.folder, fp8);
    KernelFit fit = begin(fp8 ? "mla_bmm_fp8" : "mla_bmm", rows.size());
    if (rows.empty() || too_few(fit)) continue;
    const BmmFit fitted = fit_bmm(rows, fp8, profile_);
    fit.before = fitted.before;
    fit.after = fitted.left_out;
    take(fitted.entry, std::move(fit));
  }
}

void TableFit::sparse() {
  on_class_();
  std::vector<kernels::SparseRow> rows = kernels::sparse_rows(file_.folder, decode());
  const std::size_t size = rows.size();
  SparseFit fitted;
  if (size >= kLeastRows) fitted = fit_sparse(profile_, decode(), std::move(rows));
  if (fitted.classes.empty())
    refuse(begin("attention.nsa", size),
           fmt::format("{} rows tell nothing: at least {} are needed that take longer than the host", size,
                       kLeastRows));
  for (const SparseFit::Class& of : fitted.classes) {
    KernelFit fit = begin(of.entry.operator_class(), of.rows);
    fit.before = of.before;
    fit.after = of.left_out;
    take(of.entry, std::move(fit));
  }
}

using FitTable = void (TableFit::*)();

FitTable fit_of(const std::string& table) {
  if (table == kOwnAttention) return &TableFit::own_attention;
  if (table == kOwnMla) return &TableFit::own_mla;
  if (table == "mla_bmm_perf") return &TableFit::mla_products;
  if (table == "mla_context_module_perf") return &TableFit::mla_modules;
  if (table.starts_with("dsa_")) return &TableFit::sparse;
  if (table.starts_with("wideep_")) return &TableFit::mla_beside;
  if (table.ends_with("attention_perf")) return &TableFit::attention;
  return table.ends_with("mla_perf") ? &TableFit::mla : &TableFit::operators;
}

}  // namespace

std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile) {
  std::for_each(tables.begin(), tables.end(), check_table);
  std::vector<KernelFit> fits;
  for (const KernelTableFile& file : tables) {
    TableFit table(file, on_class, profile, fits);
    (table.*fit_of(file.table))();
  }
  return fits;
}

}  // namespace tpsim::calibrate
