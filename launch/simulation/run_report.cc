#include "launch/simulation/run_report.h"

#include <optional>
#include <utility>

#include "launch/deployment/images.h"
#include "launch/deployment/speculation.h"
#include "launch/error_bands/error_band.h"
#include "launch/error_bands/residuals.h"
#include "launch/simulation/run_traits.h"

namespace tpsim::launch {
namespace {

// Ranks know pages; which parts of windows were held at most is known to the scheduler alone.
void add_window_bytes(const Deployment& deployment, const proto::RunReport& report, proto::RankReport& rank) {
  const double windows = report.peak_swa_usage() * static_cast<double>(report.swa_pool_tokens());
  const std::uint64_t bytes =
      deployment.memory.stages.at(rank.rank() / deployment.ranks.tp_size).window_bytes_per_token;
  rank.set_peak_kv_bytes(rank.peak_kv_bytes() +
                         static_cast<std::uint64_t>(windows * static_cast<double>(bytes)));
}

}  // namespace

proto::RunReport compose_report(const ServerArgs& args, const Deployment& deployment,
                                const scheduler::WorkloadOutline& workload, const proto::RunReport& scheduled,
                                std::vector<proto::RankReport> ranks, const Reach& reach) {
  proto::RunReport report = deployment.header;
  report.set_trace(workload.name);
  report.MergeFrom(scheduled);
  deployment.describe_stages(report);
  for (proto::RankReport& rank : ranks) {
    add_window_bytes(deployment, report, rank);
    *report.add_ranks() = std::move(rank);
  }
  finish_image_report(deployment.parallel.layout.dp_size, report);
  write_speculation_shares(report);
  if (args.numeric()) return report;
  for (proto::Extrapolation& beyond : reach.extrapolations(deployment.header))
    *report.add_extrapolations() = std::move(beyond);
  if (report.stopped_early()) return report;
  std::optional<proto::ErrorBands> bands = error_bands(
      catalogue_residuals(), traits_of(args, deployment, workload, report), carried_over(report), report);
  if (bands) *report.mutable_error_bands() = std::move(*bands);
  return report;
}

void add_speedup(const proto::RunReport& plain, proto::RunReport& report) {
  proto::Speculation& out = *report.mutable_speculation();
  if (report.median_tpot_ms() > 0) out.set_tpot_speedup(plain.median_tpot_ms() / report.median_tpot_ms());
  if (report.duration() > 0) out.set_duration_speedup(plain.duration() / report.duration());
}

void add_goodput(GoodputRate found, proto::RunReport& report) {
  if (found.rate) report.set_max_goodput_rate(*found.rate);
  *report.mutable_max_goodput_search() = std::move(found.search);
}

}  // namespace tpsim::launch
