#include "launch/lab/calibrate/kernel_fits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/calibrate/attention_fit.h"
#include "launch/lab/calibrate/fit_operators.h"
#include "launch/lab/calibrate/mla_bmm_fit.h"
#include "launch/lab/calibrate/sparse_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "launch/lab/kernels/operator_rows.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {
namespace {

using kernels::AttentionRow;
using Kernel = kernels::AttentionKernel;

std::string class_of(const std::string& backend, Kernel kernel) {
  return fmt::format("attention.{}.{}", backend, kernels::class_suffix(kernel));
}

// Fits one table's classes.
class TableFit {
 public:
  TableFit(const KernelTableFile& file, const std::function<void()>& on_class,
           proto::HardwareProfile& profile, std::vector<KernelFit>& fits)
      : file_(file), on_class_(on_class), profile_(profile), fits_(fits) {}

  // Fits what the table has.
  void run();

 private:
  void operators();
  void attention(bool mla);
  void own_attention(bool mla);
  void mla_modules();
  void mla_beside();
  void mla_products();
  void sparse();

  void refuse(const std::string& operator_class, std::size_t rows, const std::string& reason) {
    fits_.push_back({operator_class, file_.table, {.entry = {}, .rows = rows}, reason});
  }
  // Whether there are rows enough; it says where there are too few.
  bool enough(const std::string& operator_class, std::size_t rows) {
    if (rows < kLeastRows)
      refuse(operator_class, rows,
             fmt::format("{} rows are too few, at least {} are needed", rows, kLeastRows));
    return rows >= kLeastRows;
  }
  void take(ClassFit fit);
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
void TableFit::take(ClassFit fit) {
  const std::string name = fit.entry.operator_class();
  auto& entries = *profile_.mutable_efficiencies();
  const auto known = std::find_if(entries.begin(), entries.end(), [&](const proto::OperatorEfficiency& of) {
    return of.operator_class() == name;
  });
  std::string reason;
  if (fit.left_out.rows == 0) {
    reason = fmt::format("its {} rows are of too few shapes to leave some out, which would judge the fit",
                         fit.rows);
  } else if (fit.left_out.median < fit.before.median || known == entries.end()) {
    fit.entry.set_source(fmt::format("tpsim calibrate: {} rows of {}; the errors are those of rows left out",
                                     fit.rows, file_.source()));
    (known == entries.end() ? *entries.Add() : *known) = fit.entry;
  } else {
    reason = "rows left out come no nearer than they are";
  }
  fits_.push_back({name, file_.table, std::move(fit), reason});
}

void TableFit::operators() {
  for (const std::string& name : kernels::operator_classes()) {
    if (kernels::table_of(name) != file_.table) continue;
    on_class_();
    const std::vector<kernels::OperatorRow> rows = kernels::operator_rows(file_.folder, name, profile_);
    if (!rows.empty() && enough(name, rows.size())) take(fit_operator(name, rows, profile_));
  }
}

void TableFit::attention_class(const std::string& backend, Kernel kernel, std::vector<AttentionRow> rows,
                               bool parted) {
  const std::string name = class_of(backend, kernel);
  if (!enough(name, rows.size())) return;
  try {
    const auto made = attention::create_attention_backend(backend, profile_, kernels::page_size_of(kernel));
    if (dynamic_cast<attention::PlannedBackend*>(made.get()) == nullptr)
      return refuse(name, rows.size(), backend + " plans no kernels of its own");
  } catch (const UserError& error) {
    return refuse(name, rows.size(), error.what());
  }
  std::vector<PlanCoefficients> starts(1);
  if (!kernels::is_mla(kernel))
    starts.insert(starts.begin(), coefficients_of<PlanCoefficients>(profile_, name));
  const AttentionSource measured{std::move(rows), parted};
  take(fit_attention(profile_, backend, kernel, {&measured, 1}, starts));
}

void TableFit::attention(bool mla) {
  for (const std::string& source : table().values("kernel_source")) {
    on_class_();
    const auto [backend, kernel] = kernels::timed_kernel(source, mla, decode());
    attention_class(backend, kernel, kernels::attention_rows(file_.folder, source, kernel));
  }
}

void TableFit::own_attention(bool mla) {
  using KernelList = std::vector<Kernel>;
  const kernels::KernelTable measured = table();
  for (const std::string& name : measured.values("kernel")) {
    if (name == "flashinfer_ragged") continue;  // measured_rows() puts it to flashinfer's
    for (const Kernel kernel : mla ? KernelList{Kernel::kMlaDecode, Kernel::kMlaExtend, Kernel::kMlaPrefill}
                                   : KernelList{Kernel::kExtend, Kernel::kDecode}) {
      on_class_();
      std::vector<AttentionRow> rows = kernels::measured_rows(file_.path(), name, kernel);
      if (!rows.empty()) attention_class(name, kernel, std::move(rows), mla && measured.has("part"));
    }
  }
}

// Expanded prefills, by FlashAttention 3 where it runs and else FlashInfer; the other modules' kernels are
// timed alone elsewhere.
void TableFit::mla_modules() {
  for (const std::string& source : table().values("kernel_source")) {
    if (source != "FLASH_ATTN") {
      refuse(source, 0, "modules of this kernel are not taken apart: context_mla_perf times it alone");
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
      refuse(class_of(source, kernel), 0,
             "its modules tell a kernel only beside those of fa3, measured in the same table and with a "
             "price of its own");
    }
  }
}

void TableFit::mla_products() {
  for (const bool fp8 : {false, true}) {
    on_class_();
    const std::vector<BmmRow> rows = bmm_rows(file_.folder, fp8);
    if (!rows.empty() && enough(fp8 ? "mla_bmm_fp8" : "mla_bmm", rows.size()))
      take(fit_bmm(rows, fp8, profile_));
  }
}

void TableFit::sparse() {
  on_class_();
  std::vector<kernels::SparseRow> rows = kernels::sparse_rows(file_.folder, decode());
  const std::size_t size = rows.size();
  SparseFit fitted;
  if (size >= kLeastRows) fitted = fit_sparse(profile_, decode(), std::move(rows));
  if (fitted.classes.empty())
    refuse("attention.nsa", size,
           fmt::format("{} rows tell nothing: at least {} are needed that take longer than the host", size,
                       kLeastRows));
  for (const SparseFit::Class& of : fitted.classes) take(of);
}

void TableFit::run() {
  const std::string& table = file_.table;
  if (table == kOwnAttention || table == kOwnMla) return own_attention(table == kOwnMla);
  if (table == "mla_bmm_perf") return mla_products();
  if (table == "mla_context_module_perf") return mla_modules();
  if (table.starts_with("dsa_")) return sparse();
  if (table.starts_with("wideep_")) return mla_beside();
  const bool mla = table.ends_with("mla_perf");
  return mla || table.ends_with("attention_perf") ? attention(mla) : operators();
}

namespace fs = std::filesystem;

const std::vector<std::string>& known_tables() {
  static const std::vector<std::string> tables = split_list(
      "gemm_perf moe_perf custom_allreduce_perf nccl_perf context_attention_perf generation_attention_perf "
      "context_mla_perf generation_mla_perf mla_context_module_perf wideep_context_mla_perf "
      "wideep_generation_mla_perf mla_bmm_perf dsa_context_module_perf dsa_generation_module_perf",
      ' ');
  return tables;
}

// "gemm_perf" of ".../gemm_perf.csv.gz"; empty where the name is no table's.
std::string table_of_file(const fs::path& path) {
  std::string name = path.filename().string();
  for (const std::string_view end : {".gz", ".csv"}) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
  }
  return std::ranges::count(known_tables(), name) > 0 ? name : "";
}

// Which of our own tools' tables a plain CSV begins as; empty: none.
std::string own_table(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return "";
  if (line.starts_with("kernel,phase,heads,kv_heads,head_dim,v_head_dim,")) return kOwnMla;
  return line.starts_with("kernel,phase,heads,kv_heads,head_dim,") ? kOwnAttention : "";
}

// What a row may say. The bounds are wider than any measurement and keep a slip from filling the memory.
struct Columns {
  std::string_view table;  // the end of its name
  std::vector<const char*> names;
  double least, most;
};
constexpr double kMostLatency = 1e6;  // milliseconds

const std::vector<Columns>& bounds() {
  static const std::vector<Columns> bounds = {
      {"gemm_perf", {"m", "n", "k"}, 1, 1e8},
      {"moe_perf", {"num_tokens"}, 1, 1e8},
      {"moe_perf", {"hidden_size", "inter_size"}, 1, 1e6},
      {"moe_perf", {"topk", "moe_tp_size", "moe_ep_size"}, 1, 1e4},
      {"moe_perf", {"num_experts"}, 1, 1e5},
      {"custom_allreduce_perf", {"num_gpus"}, 1, 1e4},
      {"custom_allreduce_perf", {"message_size"}, 1, 1e13},
      {"nccl_perf", {"num_gpus"}, 1, 1e4},
      {"nccl_perf", {"message_size"}, 1, 1e13},
      {"_mla_perf", {"isl"}, 1, 1e8},
      {"module_perf", {"isl"}, 1, 1e8},
      {"attention_perf", {"isl"}, 0, 1e8},
      {"attention_perf", {"num_key_value_heads", "head_dim"}, 1, 1e4},
      {"attention_perf", {"window_size"}, 0, 1e8},
      {"mla_bmm_perf", {"num_tokens"}, 1, 1e8},
      {"mla_bmm_perf", {"num_heads"}, 1, 1e4},
  };
  return bounds;
}

// What rows of all kinds of attention have.
void check_batch(const kernels::KernelTable& table, std::size_t row) {
  table.check(row, "batch_size", 1, 1e5);
  table.check(row, "step", 0, 1e8);
  table.check(row, "num_heads", 1, 1e4);
}

void check_own_row(const kernels::KernelTable& table, std::size_t row) {
  for (const char* const column : {"heads", "kv_heads", "head_dim"}) table.check(row, column, 1, 1e4);
  table.check(row, "ms", 0, kMostLatency);
  if (table.has("window")) table.check(row, "window", 0, 1e8);
  for (const char* const column : {"prefix", "lengths"}) kernels::lengths_of(table, row, column);
}

}  // namespace

std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile) {
  std::for_each(tables.begin(), tables.end(), check_table);
  std::vector<KernelFit> fits;
  for (const KernelTableFile& file : tables) TableFit(file, on_class, profile, fits).run();
  return fits;
}

fs::path KernelTableFile::path() const {
  return file.empty() ? kernels::table_file(folder, table) : folder / file;
}

std::string KernelTableFile::source() const {
  return file.empty() ? fmt::format("{} of {}", table, fs::absolute(folder).filename().string()) : file;
}

std::vector<KernelTableFile> kernel_tables(const fs::path& given) {
  std::error_code error;
  const fs::path path = (given / "").parent_path();  // without a slash at its end
  std::vector<KernelTableFile> tables;
  if (!fs::is_directory(path, error)) {
    if (const std::string table = table_of_file(path); !table.empty() && fs::exists(path, error))
      tables.push_back({path.parent_path(), table, ""});
    else if (const std::string own = own_table(path); !own.empty())
      tables.push_back({path.parent_path(), own, path.filename().string()});
    return tables;
  }
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (const std::string table = table_of_file(entry.path()); !table.empty()) names.insert(table);
  if (names.empty())
    throw_user_error("--from {}: is a folder without tables of kernels; {} are known, each .csv or .csv.gz",
                     given.string(), fmt::join(known_tables(), ", "));
  for (const std::string& name : names) tables.push_back({path, name, ""});
  return tables;
}

void check_table(const KernelTableFile& file) {
  const kernels::KernelTable table(file.path());
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!file.file.empty()) {
      check_own_row(table, i);
      continue;
    }
    const std::string& source = table.text(i, "kernel_source");
    table.check(i, "latency_ms", 0, kMostLatency);
    if (file.table.starts_with("dsa_") && source.find("indexer_") == std::string::npos &&
        source.find("dense_mha") == std::string::npos)
      table.fail(i, fmt::format("kernel_source is {}; sglang_dsa_indexer_KERNEL, "
                                "sglang_dsa_skip_indexer_KERNEL or sglang_dsa_dense_mha_KERNEL is needed",
                                in_quotes(source)));
    for (const std::string_view end : {"_mla_perf", "module_perf", "attention_perf"})
      if (file.table.ends_with(end)) check_batch(table, i);
    for (const auto& [end, names, least, most] : bounds())
      if (file.table.ends_with(end))
        for (const char* const name : names) table.check(i, name, least, most);
  }
}

}  // namespace tpsim::calibrate
