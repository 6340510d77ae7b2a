// The report of a run, put together in one place: every part has one writer, which is given values. And which
// measured loads the run is like, for its error bands.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/goodput_search.h"
#include "launch/simulation/reach.h"
#include "proto/hardware.pb.h"
#include "proto/report.pb.h"
#include "rank/config/model_config.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Adds to the KV bytes of `ranks`, those of one replica after the other, what their windows held: ranks know
// pages; which parts of windows were held at most is known to the scheduler alone. `replicas`: what each is
// of.
void add_window_bytes(std::span<const Deployment* const> replicas, const proto::RunReport& scheduled,
                      std::span<proto::RankReport> ranks);

// What the deployment is (its header), what the scheduler measured (`scheduled`), what the ranks did
// (`ranks`, empty where they were lost), and what follows from these: stages, images, shares of speculation
// and, of priced runs, how far they went beyond what was measured (`reach`) and their error bands.
proto::RunReport compose_report(const ServerArgs& args, const Deployment& deployment,
                                const scheduler::WorkloadOutline& workload, const proto::RunReport& scheduled,
                                std::vector<proto::RankReport> ranks, const Reach& reach);

// `gpu_hour`: of all its GPUs together, for an hour; 0: nobody said. Replicas that came and went count for
// the time in which they had their GPUs.
void add_cost(double gpu_hour, proto::RunReport& report);
// Of one of its GPUs: --gpu-hour-cost, or what its hardware file says; 0: nobody does.
double gpu_hour_cost(const OutputArgs& args, const proto::HardwareProfile& hardware);

// SGLang's class of the model without what all such names end with: "Llama", "Qwen3Moe", "DeepseekV32".
std::string family_of(const rank::ModelConfig& model);

// Of a kernel that takes much of a step: attention, matrix products, experts, the all-reduce.
bool is_heavy(const proto::Calibration& row);

// Why the measured loads of its GPU and model family do not speak for the run, a sentence; empty: they do.
// Heavy kernels have no measurement on this GPU, or more than a tenth of the time was spent in steps beyond
// the shapes that were measured.
std::string carried_over(const proto::RunReport& report);

// `report`: of the run that served `workload`. Flags that pace the steps of all kernels alike (data-parallel
// attention, pipeline stages, no overlap, no graphs, mixed chunks) follow the backend's name.
proto::LoadTraits traits_of(const ServerArgs& args, const Deployment& deployment,
                            const scheduler::WorkloadOutline& workload, const proto::RunReport& report);

// Of a run with speculation: what it gained. `plain`: the same load served without.
void add_speedup(const proto::RunReport& plain, proto::RunReport& report);

// What --max-goodput-rate came to.
void add_goodput(GoodputRate found, proto::RunReport& report);

}  // namespace tpsim::launch
