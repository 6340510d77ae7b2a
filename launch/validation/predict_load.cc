#include "launch/validation/predict_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/deployment.h"
#include "launch/images.h"
#include "launch/run_flags.h"
#include "launch/run_traits.h"
#include "launch/simulate.h"
#include "launch/speculation.h"
#include "launch/stage.h"
#include "launch/validation/batch_comparison.h"
#include "launch/validation/load_records.h"
#include "launch/workload_args.h"
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

// A number from 0 to 1 of request `id` at its step `step`, the same in every process (splitmix64).
double draw(std::uint64_t id, std::uint64_t step) {
  std::uint64_t x = (id << 32 | step) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
  return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
}

// What each request keeps of its steps: of a mean between two whole numbers now the lower, now the upper one;
// together, all keep what brings them to the mean.
void set_accept_lens(const MeasuredLoad& load, scheduler::Workload& workload) {
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    scheduler::WorkloadRequest& request = workload.requests[i];
    std::size_t part = 0;
    std::uint32_t kept = 0;
    for (std::uint32_t step = 0; kept < request.max_new_tokens; ++step) {
      while (part + 1 < load.accept_lens.size() && load.accept_lens[part + 1].first <= step) ++part;
      const double mean = load.accept_lens[part].second;
      const double low = std::floor(mean);
      double length = low + (draw(i, step) < mean - low ? 1 : 0);
      if (load.accept_together) length = std::floor((step + 1) * mean) - std::floor(step * mean);
      request.accept_lens.push_back(static_cast<std::uint32_t>(length));
      kept += request.accept_lens.back();
    }
  }
}

std::string uncalibrated(const proto::RunReport& report) {
  std::vector<std::string> classes;
  for (const proto::Calibration& row : report.calibration())
    if (row.status() == "uncalibrated") classes.push_back(row.operator_class());
  return classes.empty() ? "calibrated" : fmt::format("uncalibrated: {}", fmt::join(classes, ", "));
}

void serve(const MeasuredLoad& load, const std::atomic<bool>& stop, proto::ValidatedRow& row) {
  const ServerArgs args = read_run_flags(load.flags);
  const Deployment deployment = std::move(resolve_deployments(args, /*compare=*/false).at(0));
  row.set_backend(deployment.backends.name());
  if (load.pool_tokens) {
    row.mutable_pool_tokens()->set_measured(static_cast<double>(*load.pool_tokens));
    row.mutable_pool_tokens()->set_predicted(static_cast<double>(deployment.scheduler.max_total_num_tokens));
  }
  scheduler::Workload workload = load.workload ? *load.workload : load_workload(args);
  if (!load.accept_lens.empty()) set_accept_lens(load, workload);
  place_workload_images(args, deployment.model, workload);
  check_workload(workload, deployment);
  check_accept_lens(deployment.speculation, args.speculation.accept_from_trace, workload);
  rank::ProcessGroup alone;
  alone.tp_size = deployment.ranks.num_ranks();
  const Stage stage(args, alone, nullptr, nullptr);
  LoadRecords records(stop);
  std::optional<std::string> loss;
  const proto::RunReport report = serve_deployment(stage, deployment, workload, records, loss);
  if (stop) return;
  if (records.rejected() > 0)
    throw_user_error("{} of the {} requests do not fit the pool or the context that tpsim finds",
                     records.rejected(), workload.requests.size());
  const MeasuredFigures predicted = records.figures();
  set(load.measured.ttft_ms, predicted.ttft_ms, &proto::ValidatedRow::mutable_ttft_ms, row);
  set(load.measured.tpot_ms, predicted.tpot_ms, &proto::ValidatedRow::mutable_tpot_ms, row);
  set(load.measured.e2e_ms, predicted.e2e_ms, &proto::ValidatedRow::mutable_e2e_ms, row);
  set(load.measured.duration_s, predicted.duration_s, &proto::ValidatedRow::mutable_duration_s, row);
  row.set_calibration(uncalibrated(report));
  *row.mutable_traits() = traits_of(args, deployment, workload, report);
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
