// One setting of a sweep: resolved, or refused with the sentence why; and served.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/deployment/deployment.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/sweep.h"
#include "proto/report.pb.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// A setting with its options resolved, or why it cannot be carried out.
struct ResolvedSetting {
  const Setting* setting = nullptr;  // must outlive it
  std::optional<Deployment> deployment;
  std::string refusal;
};
ResolvedSetting resolve_setting(const Setting& setting);
// The same, with the workload looked at, too: it is refused where the deployment can serve none of it.
void check_setting(const scheduler::WorkloadOutline& workload, ResolvedSetting& resolved);

// `resolved`, which has a deployment, serves the workload on `stage`, or on priced ranks of this process;
// where go_on() says no, the report is of what was served so far. With --max-goodput-rate it has that search,
// too. May be called by several threads at once. Throws RankLost.
proto::RunReport serve_setting(const ResolvedSetting& resolved, const scheduler::StreamedWorkload& workload,
                               const Stage& stage, const std::function<bool()>& go_on);
proto::RunReport serve_setting(const ResolvedSetting& resolved, const scheduler::StreamedWorkload& workload,
                               const std::function<bool()>& go_on);

}  // namespace tpsim::launch
