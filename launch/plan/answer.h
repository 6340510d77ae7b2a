// What `tpsim plan` answers: the best settings, what bounds each, and the commands that start them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/acceptance.h"
#include "launch/flags/server_args.h"
#include "launch/plan/search.h"
#include "launch/plan/space.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

struct PlanQuestion {
  std::vector<std::uint32_t> gpus;  // numbers of them to plan for, ascending
  double share = 0.99;              // of requests within the service levels, where there are levels
  bool explain = false;
};

// What takes most of a GPU's time, and whether the KV pool is full; one line.
std::string bound_of(const proto::RunReport& run);

// Of a run, for a million tokens of prompts and answers, in the money of `gpu_hour_cost`; at the rate that
// --max-goodput-rate found, where it found one.
double cost_per_million_tokens(const proto::RunReport& run, double gpu_hour_cost);

struct PlanAnswer {
  // Runs of `report`, the proposed one first. That is the best, or one with fewer flags that measurements
  // could not be expected to tell from it and that is predicted to be at most kAsGood worse.
  std::vector<int> order;
  // One run of each layout, in that order, at most kShown.
  std::vector<int> shown;
};
inline constexpr double kAsGood = 0.03;
inline constexpr std::size_t kShown = 5;

// REQUIRES: find_ties() and mark_pareto() were called; run i of `report` is of setting `settings[i]` of the
// space.
PlanAnswer answer_plan(const PlanQuestion& question, const PlanSpace& space,
                       const std::vector<std::size_t>& settings, const proto::ComparisonReport& report);

// Acceptance that nobody stated, of a setting that drafts.
struct PlanAssumption {
  int run = 0;  // of the report
  PublishedAcceptance acceptance;
  double kept = 0;                  // tokens of a step, in the mean
  std::optional<double> pays_from;  // the least of them with which it ranks before `against`
  int against = 0;                  // the best run without a head
};

// So many GPUs of a type, of --gpus, are no answer.
struct FleetTooSmall {
  std::uint32_t gpus = 0;
  std::string reason;  // a sentence
};

// The plan for one type of GPU.
struct GpuPlan {
  std::string hardware;                 // as --hardware names it
  std::optional<double> gpu_hour_cost;  // in the user's money
  PlanSpace space;
  PlanSearch search;
  std::vector<std::size_t> settings;  // of the space, that of each run of the report
  proto::ComparisonReport report;
  PlanAnswer answer;                        // its order is not empty
  std::vector<PlanAssumption> assumptions;  // of the runs that are shown
  // Of several numbers of GPUs for one load with levels: those below the plan's.
  std::vector<FleetTooSmall> too_small;

  const proto::RunReport& proposed() const { return report.runs(answer.order.front()); }
  // What bounds a run of the report, which keeps the ranks of few where runs are many.
  std::string bound_of_run(int run) const;
  const Setting& setting_of(int run) const { return space.settings[settings[static_cast<std::size_t>(run)]]; }
};

// The table, what bounds its rows, the commands, how sure it is, and what was searched. `colour`: ANSI;
// `width`: columns of the terminal, 0 for any.
std::string plan_text(const PlanQuestion& question, const ServerArgs& args, const GpuPlan& plan, bool colour,
                      int width = 0);
// Of several numbers of GPUs, a line for each that is no answer, and that others were not asked about.
std::vector<std::string> other_fleets(const PlanQuestion& question, const ServerArgs& args,
                                      const GpuPlan& plan);
// How many settings were served and, with --explain, why others cannot be.
std::string searched_text(const PlanQuestion& question, const GpuPlan& plan);

}  // namespace tpsim::launch
