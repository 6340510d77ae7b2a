#include "launch/simulation/served_setting.h"

#include <utility>

#include "launch/deployment/resolve.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/goodput_search.h"
#include "launch/simulation/run_report.h"
#include "launch/simulation/simulate.h"
#include "proto/base/error.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {
namespace {

// Keeps what the run sums up, and stops when whoever asked for it does.
class GoOnMonitor : public scheduler::NoRecords {
 public:
  explicit GoOnMonitor(const std::function<bool()>& go_on) : go_on_(go_on) {}
  bool on_progress(const scheduler::Progress&) override { return go_on_(); }

 private:
  const std::function<bool()>& go_on_;
};

}  // namespace

ResolvedSetting resolve_setting(const Setting& setting) {
  ResolvedSetting resolved;
  resolved.setting = &setting;
  try {
    check_server_args(setting.args, /*compare=*/true);
    const bool named = !setting.args.attention_backends.empty();  // else chosen for GPU and model
    resolved.deployment = std::move(resolve_deployments(setting.args, named).at(0));
  } catch (const UserError& error) {
    resolved.refusal = error.what();
  }
  return resolved;
}

void check_setting(const scheduler::WorkloadOutline& workload, ResolvedSetting& resolved) {
  if (!resolved.deployment) return;
  try {
    check_workload(workload, *resolved.deployment);
  } catch (const UserError& error) {
    resolved.refusal = error.what();
    resolved.deployment.reset();
  }
}

proto::RunReport serve_setting(const ResolvedSetting& resolved, const scheduler::StreamedWorkload& workload,
                               const Stage& stage, const std::function<bool()>& go_on) {
  GoOnMonitor monitor(go_on);
  std::optional<std::string> loss;
  proto::RunReport report = serve_deployment(stage, *resolved.deployment, workload, monitor, loss);
  if (loss) throw rank::RankLost(*loss);
  if (resolved.setting->args.max_goodput_rate && !report.stopped_early())
    add_goodput(search_max_goodput_rate(
                    resolved.setting->args, *resolved.deployment, workload, {}, [](double) {}, monitor),
                report);
  report.mutable_settings()->insert(resolved.setting->values.begin(), resolved.setting->values.end());
  return report;
}

proto::RunReport serve_setting(const ResolvedSetting& resolved, const scheduler::StreamedWorkload& workload,
                               const std::function<bool()>& go_on) {
  rank::ProcessGroup alone;
  alone.tp_size = resolved.deployment->ranks.num_ranks();
  const Stage stage(resolved.setting->args, alone, nullptr, nullptr);
  return serve_setting(resolved, workload, stage, go_on);
}

}  // namespace tpsim::launch
