#include "launch/plan/plan_json.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "launch/plan/ranking.h"
#include "launch/report/comparison.h"
#include "launch/report/json_writer.h"
#include "launch/simulation/launch_line.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kPlanVersion = 2;
constexpr std::array<std::string_view, 18> kFigures = {
    "request_throughput", "total_throughput", "output_throughput", "mean_ttft_ms",     "p99_ttft_ms",
    "mean_tpot_ms",       "p99_tpot_ms",      "mean_itl_ms",       "p99_itl_ms",       "mean_e2e_latency_ms",
    "p99_e2e_latency_ms", "request_goodput",  "goodput_share",     "max_goodput_rate", "cache_hit_rate",
    "peak_kv_usage",      "retractions",      "gpu_busy_fraction"};

Json row_of(const PlanQuestion& question, const GpuPlan& plan, int i) {
  const proto::RunReport& run = plan.report.runs(i);
  const Json whole = to_json(run);
  Json figures = Json::object();
  for (const std::string_view name : kFigures) figures[std::string(name)] = whole.at(std::string(name));
  if (plan.gpu_hour_cost)
    figures["cost_per_million_tokens"] = cost_per_million_tokens(run, *plan.gpu_hour_cost);
  Json row = {{"hardware", plan.hardware},
              {"flags", whole.at("settings")},
              {"gpus", num_gpus(run)},
              {"holds", holds(run, question.share)},
              {"pareto", run.pareto()},
              {"figures", std::move(figures)},
              {"bands", run.has_error_bands() ? whole.at("error_bands").at("bands") : Json::array()},
              {"bound_by", plan.bound_of_run(i)},
              {"launch", launch_commands(plan.setting_of(i).args)}};
  const auto assumed = std::ranges::find(plan.assumptions, i, &PlanAssumption::run);
  if (assumed != plan.assumptions.end()) {
    row["assumed_acceptance"] = {{"rate", assumed->acceptance.rate},
                                 {"kept_tokens", assumed->kept},
                                 {"of", assumed->acceptance.of},
                                 {"source", assumed->acceptance.source}};
    if (assumed->pays_from) row["assumed_acceptance"]["pays_from"] = *assumed->pays_from;
  }
  return row;
}

// How the plan of one type of GPU was found.
Json search_of(const GpuPlan& plan) {
  const PlanSearch& search = plan.search;
  Json json = {{"name", plan.hardware}};
  if (plan.gpu_hour_cost) json["gpu_hour_cost"] = *plan.gpu_hour_cost;
  json["certainty"] = plan.report.certainty();
  json["ties"] = to_json(plan.report).value("ties", Json::array());
  json["searched"] = {{"settings", plan.space.settings.size()},
                      {"twins", search.twins},
                      {"passed_over", search.passed_over},
                      {"stopped", search.hopeless},
                      {"rounds", Json::array()}};
  for (const PlanSearch::Round& round : search.rounds)
    json["searched"]["rounds"].push_back({{"requests", round.requests}, {"settings", round.settings}});
  for (const FleetTooSmall& fleet : plan.too_small)
    json["too_small"].push_back({{"gpus", fleet.gpus}, {"reason", fleet.reason}});
  json["refused"] = Json::array();
  for (const auto& [reason, count] : search.refused)
    json["refused"].push_back({{"settings", count}, {"reason", reason}});
  return json;
}

}  // namespace

Json plan_json(const PlanQuestion& question, const ServerArgs& args, std::span<const GpuPlan> plans,
               std::span<const GpuRefusal> refusals) {
  const proto::RunReport& any = plans.front().proposed();
  Json json = {
      {"version", kPlanVersion}, {"model", any.model()}, {"gpus", question.gpus}, {"trace", any.trace()}};
  if (args.goodput.any()) {
    json["slo"] = to_string(args.goodput);
    json["slo_share"] = question.share;
  }
  json["best"] = Json::array();
  for (const GpuPlan& plan : plans) json["best"].push_back(row_of(question, plan, plan.answer.order.front()));
  for (const GpuPlan& plan : plans) {
    for (std::size_t rank = 1; rank < plan.answer.order.size(); ++rank)
      json["best"].push_back(row_of(question, plan, plan.answer.order[rank]));
  }
  json["hardware"] = Json::array();
  for (const GpuPlan& plan : plans) json["hardware"].push_back(search_of(plan));
  for (const GpuRefusal& refusal : refusals)
    json["hardware"].push_back({{"name", refusal.hardware}, {"reason", refusal.reason}});
  return json;
}

}  // namespace tpsim::launch
