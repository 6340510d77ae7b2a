#include "launch/validation/predict_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment.h"
#include "launch/run_traits.h"
#include "launch/validation/batch_comparison.h"
#include "launch/validation/load_records.h"
#include "launch/validation/servable_load.h"
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

void set(const std::optional<double>& measured, const std::optional<double>& predicted,
         proto::MeasuredFigure* (proto::ValidatedRow::*field)(), proto::ValidatedRow& row) {
  if (!measured || !predicted || *measured <= 0) return;
  proto::MeasuredFigure& figure = *(row.*field)();
  figure.set_measured(*measured);
  figure.set_predicted(*predicted);
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
  row.set_backend(deployment.backends.name());
  if (load.pool_tokens) {
    row.mutable_pool_tokens()->set_measured(static_cast<double>(*load.pool_tokens));
    row.mutable_pool_tokens()->set_predicted(static_cast<double>(deployment.scheduler.max_total_num_tokens));
  }
  LoadRecords records(stop);
  const proto::RunReport report = servable.serve(deployment, records);
  if (stop) return;
  const MeasuredFigures predicted = records.figures();
  set(load.measured.ttft_ms, predicted.ttft_ms, &proto::ValidatedRow::mutable_ttft_ms, row);
  set(load.measured.tpot_ms, predicted.tpot_ms, &proto::ValidatedRow::mutable_tpot_ms, row);
  set(load.measured.e2e_ms, predicted.e2e_ms, &proto::ValidatedRow::mutable_e2e_ms, row);
  set(load.measured.duration_s, predicted.duration_s, &proto::ValidatedRow::mutable_duration_s, row);
  row.set_calibration(uncalibrated(report));
  *row.mutable_traits() = traits_of(servable.args(), deployment, servable.workload().outline(), report);
  if (load.batches.empty()) return;
  *row.add_steps() = compare_decode(load.batches, records.steps());
  *row.add_steps() = compare_prefill(load.batches, records.steps());
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
    row.clear_ttft_ms();
    row.clear_tpot_ms();
    row.clear_e2e_ms();
    row.clear_duration_s();
    row.set_refusal(error.what());
  }
  return row;
}

}  // namespace tpsim::launch
