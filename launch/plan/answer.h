// What `tpsim plan` answers: the best settings, what bounds each, and the commands that start them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "launch/plan/search.h"
#include "launch/plan/space.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

struct PlanQuestion {
  std::vector<std::uint32_t> gpus;  // numbers of them to plan for, ascending
  double share = 0.99;              // of requests within the service levels, where there are levels
  std::optional<double> gpu_hour_cost;
  bool explain = false;
};

// What takes most of a GPU's time, and whether the KV pool is full; one line.
std::string bound_of(const proto::RunReport& run);

// Of a run, for a million tokens of prompts and answers, in the money of `gpu_hour_cost`.
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

// The table, what bounds its rows, the commands, how sure it is, and what was searched. `colour`: ANSI.
std::string plan_text(const PlanQuestion& question, const ServerArgs& args, const PlanSpace& space,
                      const PlanSearch& search, const std::vector<std::size_t>& settings,
                      const proto::ComparisonReport& report, const PlanAnswer& answer, bool colour);
// plan.json.
nlohmann::ordered_json plan_json(const PlanQuestion& question, const ServerArgs& args, const PlanSpace& space,
                                 const PlanSearch& search, const std::vector<std::size_t>& settings,
                                 const proto::ComparisonReport& report, const PlanAnswer& answer);

}  // namespace tpsim::launch
