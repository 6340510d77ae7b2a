#include "launch/lab/validation/predict_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/lab/served/batch_comparison.h"
#include "launch/lab/served/servable_load.h"
#include "launch/lab/validation/validation_report.h"
#include "launch/simulation/run_report.h"
#include "proto/base/error.h"

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
  row.set_command(fmt::format("tpsim run {}", fmt::join(load.flags, " ")));
  row.set_file(load.file);
  return row;
}

std::string uncalibrated(const proto::RunReport& report) {
  std::vector<std::string> classes;
  for (const proto::Calibration& row : report.calibration())
    if (row.status() == "uncalibrated") classes.push_back(row.operator_class());
  return classes.empty() ? "calibrated" : fmt::format("uncalibrated: {}", fmt::join(classes, ", "));
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
  const MeasuredFigures figures = records.figures();
  for (const RowFigure& figure : row_figures()) {
    const std::optional<double>& measured = load.measured.*figure.of;
    const std::optional<double>& predicted = figures.*figure.of;
    if (!measured || !predicted || *measured <= 0) continue;
    (row.*figure.change)()->set_measured(*measured);
    (row.*figure.change)()->set_predicted(*predicted);
  }
  row.set_calibration(uncalibrated(report));
  *row.mutable_traits() = traits_of(servable.args(), deployment, servable.workload().outline(), report);
  if (load.batches.empty()) return;
  *row.add_steps() = compare("decode", predicted_decode_steps(load.batches, records.steps()));
  *row.add_steps() = compare("prefill", predicted_prefill_steps(load.batches, records.steps()));
  *row.mutable_measured_timeline() = measured_timeline(load.batches, kTimelinePoints);
  *row.mutable_predicted_timeline() = served_timeline(records.steps(), kTimelinePoints);
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

}  // namespace tpsim::launch
