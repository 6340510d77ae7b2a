#include "launch/lab/validation/predict_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "attention/sparse_cost.h"
#include "launch/cli/shell_line.h"
#include "launch/deployment/deployment.h"
#include "launch/lab/kernels/attention_rows.h"
#include "launch/lab/kernels/compressed_rows.h"
#include "launch/lab/kernels/grouped_rows.h"
#include "launch/lab/kernels/kernel_table.h"
#include "launch/lab/kernels/operator_rows.h"
#include "launch/lab/served/batch_comparison.h"
#include "launch/lab/served/servable_load.h"
#include "launch/lab/validation/validation_report.h"
#include "launch/simulation/run_report.h"
#include "proto/base/error.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

constexpr std::size_t kTimelinePoints = 1200;

proto::ValidatedRow describe(const MeasuredLoad& load) {
  proto::ValidatedRow row;
  if (!load.id.empty()) {
    row.set_id(load.id);
  } else {
    row.set_server(load.server);
  }
  row.set_load(load.load);
  row.set_model(load.model);
  row.set_hardware(load.hardware);
  row.set_backend(load.backend);
  row.set_tp(load.tp);
  row.set_load_kind(load.load_kind);
  row.set_settings(load.settings);
  if (load.setting_by_time) row.set_setting_by_time(true);
  row.set_command("tpsim run " + shell_command(load.flags));
  row.set_file(load.file);
  return row;
}

std::string uncalibrated(const proto::RunReport& report) {
  std::vector<std::string> classes;
  for (const proto::Calibration& row : report.calibration())
    if (row.status() == "uncalibrated") classes.push_back(row.operator_class());
  return classes.empty() ? "calibrated" : fmt::format("uncalibrated: {}", fmt::join(classes, ", "));
}

// What was served, as the load's figures were taken.
MeasuredFigures predicted_figures(const MeasuredLoad& load, const LoadRecords& records,
                                  const proto::RunReport& report) {
  MeasuredFigures figures = records.figures();
  const auto take = [](Statistic statistic, double mean, double median, std::optional<double>& figure) {
    if (statistic != Statistic::kOfAll) figure = statistic == Statistic::kMean ? mean : median;
  };
  take(load.ttft, report.mean_ttft_ms(), report.median_ttft_ms(), figures.ttft_ms);
  take(load.tpot, report.mean_tpot_ms(), report.median_tpot_ms(), figures.tpot_ms);
  take(load.e2e, report.mean_e2e_latency_ms(), report.median_e2e_latency_ms(), figures.e2e_ms);
  return figures;
}

void serve(const MeasuredLoad& load, const std::atomic<bool>& stop, proto::ValidatedRow& row) {
  const ServableLoad servable(load, load.flags);
  const Deployment& deployment = servable.deployment();
  row.set_backend(deployment.attention.backends.name());
  if (load.pool_tokens) {
    row.mutable_pool_tokens()->set_measured(static_cast<double>(*load.pool_tokens));
    row.mutable_pool_tokens()->set_predicted(static_cast<double>(deployment.scheduler.max_total_num_tokens));
  }
  LoadRecords records(stop);
  const proto::RunReport report = servable.serve(deployment, records);
  if (stop) return;
  const MeasuredFigures figures = predicted_figures(load, records, report);
  for (const RowFigure& figure : row_figures()) {
    const std::optional<double>& measured = load.measured.*figure.of;
    const std::optional<double>& predicted = figures.*figure.of;
    if (!measured || !predicted || *measured <= 0) continue;
    (row.*figure.change)()->set_measured(*measured);
    (row.*figure.change)()->set_predicted(*predicted);
  }
  if (load.cached_tokens) {
    row.mutable_cached_tokens()->set_measured(static_cast<double>(*load.cached_tokens));
    row.mutable_cached_tokens()->set_predicted(static_cast<double>(records.cached_tokens()));
  }
  if (load.cached) {
    const auto hold = [](std::uint64_t measured, std::uint64_t predicted, proto::MeasuredFigure& figure) {
      figure.set_measured(static_cast<double>(measured));
      figure.set_predicted(static_cast<double>(predicted));
    };
    hold(load.cached->device, records.cached().device, *row.mutable_cached_device_tokens());
    hold(load.cached->host, records.cached().host, *row.mutable_cached_host_tokens());
    hold(load.cached->storage, records.cached().storage, *row.mutable_cached_storage_tokens());
  }
  row.set_calibration(uncalibrated(report));
  *row.mutable_traits() = traits_of(servable.args(), deployment, servable.workload().outline(), report);
  add_answered_bands(!carried_over(report).empty(), row);
  if (load.batches.empty()) return;
  *row.add_steps() = compare("decode", predicted_decode_steps(load.batches, records.steps()));
  *row.add_steps() = compare("prefill", predicted_prefill_steps(load.batches, records.steps()));
  *row.mutable_measured_timeline() = measured_timeline(load.batches, kTimelinePoints);
  *row.mutable_predicted_timeline() = served_timeline(records.steps(), kTimelinePoints);
}

namespace fs = std::filesystem;
using kernels::AttentionRow;
using Kernels = std::vector<proto::ValidatedKernel>;

constexpr std::string_view kEnd = "_perf.csv.gz";

// A folder's name as the catalogue has the GPU.
std::string hardware_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  std::replace(name.begin(), name.end(), '_', '-');
  if (name == "b200-sxm" || name == "b300-sxm") name.resize(4);
  if (name == "rtx-pro-6000-server") name = "rtx-pro-6000";
  return name;
}

std::string format_of(const attention::LayerShape& layer) {
  return std::string(layer.q_bytes == 1 ? "fp8" : "bf16") + ", KV " +
         (layer.kv_bytes() == 1 ? "fp8" : "bf16");
}

class Table {
 public:
  Table(const KernelTask& task, const std::atomic<bool>& stop)
      : task_(task), stop_(stop), profile_(rank::load_hardware(hardware_of(task.folder))) {}

  Kernels attention(bool mla, bool decode) {
    for (const std::string& source : kernels::KernelTable(path()).values("kernel_source")) {
      const auto [backend, kernel] = kernels::timed_kernel(source, mla, decode);
      price_attention(backend, kernel, kernels::attention_rows(task_.folder, source, kernel));
    }
    return std::move(out_);
  }

  Kernels operators() {
    const rank::OperatorCosts costs(profile_);
    const std::string rest = kernels::left_out_of(task_.folder, task_.table);
    std::size_t left = rest.empty() ? 0 : kernels::KernelTable(path()).size();
    for (const std::string& name : kernels::operator_classes()) {
      if (kernels::table_of(name) != task_.table || stop_) continue;
      const std::vector<kernels::OperatorRow> rows = kernels::operator_rows(task_.folder, name, profile_);
      const auto* const matrix = kernels::matrix_rows_of(name);
      left -= std::min(left, rows.size());
      proto::ValidatedKernel& group = begin(name, matrix != nullptr ? matrix->dtype : "half");
      std::vector<double> ratios;
      const std::size_t every = stride(rows.size());
      for (std::size_t i = 0; i < rows.size() && !stop_; i += every)
        if (rows[i].seconds > 0) ratios.push_back(kernels::price(costs, name, rows[i]) / rows[i].seconds);
      end(group, ratios);
    }
    if (left > 0) {
      proto::ValidatedKernel& group = begin("", "");
      group.set_not_asked(left);
      group.set_reason(rest);
    }
    return std::move(out_);
  }

  // Modules of DeepSeek V4's attention, whose products a pass prices apart.
  Kernels compressed() {
    const rank::OperatorCosts costs(profile_);
    const bool decode = task_.table.find("generation") != std::string::npos;
    const std::string kind = task_.table.starts_with("dsv4_csa_") ? "csa" : "hca";
    const std::string phase = decode ? ".decode" : ".extend", family = "attention.dsv4.";
    const attention::SparseCost attend(profile_, family + kind + phase, family + "indexer" + phase);
    const std::vector<kernels::CompressedRow> rows =
        kernels::compressed_rows(task_.folder, task_.table, profile_, kMostRows);
    for (const bool fp8 : {false, true}) {
      proto::ValidatedKernel& group = begin(kind + phase, fp8 ? "fp8 products" : "bf16 products");
      std::vector<double> ratios;
      for (const kernels::CompressedRow& row : rows)
        if (row.fp8_gemm == fp8 && !stop_)
          ratios.push_back((kernels::products(costs, row) + kernels::attention_price(attend, row)) /
                           row.seconds);
      end(group, ratios);
    }
    return std::move(out_);
  }

  // MiniMax M3's.
  Kernels block_sparse() {
    const std::string phase = task_.table.find("generation") != std::string::npos ? ".decode" : ".extend";
    const kernels::BlockSparseRows rows =
        kernels::block_sparse_rows(task_.folder, task_.table, profile_, kMostRows);
    for (const bool fp8 : {false, true}) {
      const std::string width = fp8 ? "_fp8" : "";
      const attention::SparseCost attend(profile_, "attention.msa.blocks" + width + phase,
                                         "attention.msa.indexer" + width + phase);
      proto::ValidatedKernel& group = begin("msa" + phase, fp8 ? "KV fp8" : "KV bf16");
      std::vector<double> ratios;
      for (const kernels::CompressedRow& row : rows.rows)
        if (row.layer.fp8_kv() == fp8 && !stop_)
          ratios.push_back((row.apart + kernels::attention_price(attend, row)) / row.seconds);
      end(group, ratios);
    }
    if (rows.waited == 0) return std::move(out_);
    proto::ValidatedKernel& waited = begin("msa" + phase, "");
    waited.set_not_asked(rows.waited);
    waited.set_reason("launched one by one in Python: the host's time, whatever the kernels take");
    return std::move(out_);
  }

  // Experts behind an all-to-all.
  Kernels grouped() {
    const kernels::GroupedRows rows = kernels::grouped_rows(task_.folder, task_.table);
    const auto experts = rank::GroupedExperts::of(profile_, rows.kernel);
    if (!experts) return not_priced(fmt::format("{} has no such experts", profile_.name()));
    proto::ValidatedKernel& group =
        begin(std::string(rank::grouped_class(rows.kernel)),
              rows.weight.kind == rank::WeightFormat::Kind::kFp8 ? "fp8_block" : "mxfp4");
    std::vector<double> ratios;
    for (const kernels::GroupedRow& row : rows.rows)
      ratios.push_back(std::max(rows.least_seconds, experts->cost(row.work, rows.weight).seconds) /
                       row.seconds);
    if (rows.unknown > 0) {
      group.set_not_asked(rows.unknown);
      group.set_reason("draws that the table does not describe: sampled, or of fewer visits than experts");
    }
    end(group, ratios);
    return std::move(out_);
  }

  Kernels not_priced(const std::string& reason) {
    proto::ValidatedKernel& group = begin("", "");
    group.set_not_asked(kernels::KernelTable(path()).size());
    group.set_reason(reason);
    return std::move(out_);
  }

 private:
  fs::path path() const { return task_.folder / (task_.table + ".csv.gz"); }
  static std::size_t stride(std::size_t rows) { return std::max<std::size_t>(1, rows / kMostRows); }

  proto::ValidatedKernel& begin(const std::string& backend, const std::string& format) {
    proto::ValidatedKernel& group = out_.emplace_back();
    group.set_table(task_.table);
    group.set_system(profile_.name());
    group.set_backend(backend);
    group.set_format(format);
    return group;
  }
  void end(proto::ValidatedKernel& group, const std::vector<double>& ratios) {
    if (ratios.empty() && group.not_asked() == 0) {
      out_.pop_back();  // the table has no such rows
      return;
    }
    *group.mutable_error() = error_figures(ratios);
  }

  // By number format.
  void price_attention(const std::string& name, kernels::AttentionKernel kernel,
                       const std::vector<AttentionRow>& rows) {
    std::unique_ptr<attention::AttentionBackend> backend;
    std::string reason;
    try {
      backend = attention::create_attention_backend(name, profile_, kernels::page_size_of(kernel));
    } catch (const UserError& error) {
      reason = error.what();
    }
    auto* const planned = dynamic_cast<attention::PlannedBackend*>(backend.get());
    if (backend != nullptr && planned == nullptr) reason = name + " plans no kernels of its own";
    if (planned == nullptr) {
      proto::ValidatedKernel& group = begin(name, "");
      group.set_not_asked(rows.size());
      group.set_reason(reason);
      return;
    }
    const std::string named = name + "." + kernels::class_suffix(kernel);
    const attention::PlanCost cost(profile_, "attention." + named, attention::Residency::kHot);
    std::map<std::string, std::vector<const AttentionRow*>> formats;
    for (const AttentionRow& row : rows)
      if (row.seconds > 0 && !row.lengths.empty()) formats[format_of(row.layer)].push_back(&row);
    for (const auto& [format, members] : formats) {
      proto::ValidatedKernel& group = begin(named, format);
      std::vector<double> ratios;
      const std::size_t every = stride(members.size());
      for (std::size_t i = 0; i < members.size() && !stop_; i += every) {
        const AttentionRow& row = *members[i];
        ratios.push_back(kernels::price(*planned, cost, row, kernels::decodes(kernel)) / row.seconds);
      }
      end(group, ratios);
    }
  }

  const KernelTask& task_;
  const std::atomic<bool>& stop_;
  const proto::HardwareProfile profile_;
  Kernels out_;
};

bool is_table(const fs::directory_entry& entry) { return entry.path().filename().string().ends_with(kEnd); }

void add_tables(const fs::path& folder, std::vector<KernelTask>& tasks) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!is_table(entry)) continue;
    const std::string name = entry.path().filename().string();
    names.push_back(name.substr(0, name.size() - std::string_view(".csv.gz").size()));
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) tasks.push_back({folder, name});
}

}  // namespace

proto::ValidatedRow predict_load(const MeasuredLoad& load, const std::atomic<bool>& stop) {
  proto::ValidatedRow row = describe(load);
  if (!load.refusal.empty()) {
    row.set_refusal(load.refusal);
    return row;
  }
  try {
    serve(load, stop, row);
  } catch (const UserError& error) {
    row = describe(load);
    row.set_refusal(error.what());
  }
  return row;
}

std::vector<KernelTask> kernel_tasks(const fs::path& given) {
  std::error_code error;
  const fs::path folder = (given / "").parent_path();  // without a slash at its end
  if (!fs::is_directory(folder, error)) throw_user_error("--kernels {}: is not a folder", given.string());
  std::vector<KernelTask> tasks;
  add_tables(folder, tasks);
  std::vector<fs::path> systems;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_directory(error)) systems.push_back(entry.path());
  std::sort(systems.begin(), systems.end());
  for (const fs::path& system : systems) add_tables(system, tasks);
  if (tasks.empty())
    throw_user_error(
        "--kernels {}: has no tables; SYSTEM/TABLE_perf.csv.gz are needed, SYSTEM such as h200_sxm",
        given.string());
  for (const KernelTask& task : tasks) {
    try {
      rank::load_hardware(hardware_of(task.folder));
    } catch (const UserError& unknown) {
      throw_user_error("--kernels {}: {}: {}", given.string(), task.folder.filename().string(),
                       unknown.what());
    }
  }
  return tasks;
}

Kernels price_kernels(const KernelTask& task, const std::atomic<bool>& stop) {
  Table table(task, stop);
  const std::string& name = task.table;
  for (const bool mla : {false, true})
    for (const bool decode : {false, true})
      if (name == fmt::format("{}_{}_perf", decode ? "generation" : "context", mla ? "mla" : "attention"))
        return table.attention(mla, decode);
  if (task.folder.filename().string().starts_with("rtx_pro_6000") &&
      (name.starts_with("dsv4_") || name.starts_with("mhc_")))
    return table.not_priced("SGLang 0.5.14 ran it in plain PyTorch there, for which 0.5.23 has kernels");
  for (const std::string& of : kernels::operator_classes())
    if (kernels::table_of(of) == name) return table.operators();
  if (kernels::is_compressed_table(name)) return table.compressed();
  if (kernels::is_block_sparse_table(name)) return table.block_sparse();
  if (kernels::grouped_kernel(name)) return table.grouped();
  if (name.starts_with("dsv4_"))
    return table.not_priced(
        "a part of the modules of the other tables of DeepSeek V4, which are priced whole");
  if (name == "encoder_attention_perf")
    return table.not_priced("attention without a causal mask is no backend's of language models");
  return table.not_priced(
      "each row times a whole module, of which the tools that fit its kernels (tests/calibration) take the "
      "known parts off");
}

}  // namespace tpsim::launch
