#include "launch/plan/gpu_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "launch/plan/ranking.h"
#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "launch/report/text_table.h"
#include "launch/simulation/launch_line.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

constexpr double kTie = 0.01;

bool have_costs(std::span<const GpuPlan> plans) {
  return std::ranges::all_of(plans, [](const GpuPlan& plan) { return plan.gpu_hour_cost.has_value(); });
}

// Of one GPU; the one figure that stands for the plan's worth where there are no costs.
double requests_per_second(const proto::RunReport& run) {
  double rate = run.request_throughput();
  if (run.has_request_goodput()) rate = run.request_goodput();
  if (run.has_max_goodput_rate() && std::isfinite(run.max_goodput_rate())) rate = run.max_goodput_rate();
  return rate / num_gpus(run);
}

// Higher is better.
double worth_of(const GpuPlan& plan, bool by_cost) {
  const proto::RunReport& run = plan.proposed();
  if (!by_cost) return requests_per_second(run);
  const double cost = cost_per_million_tokens(run, *plan.gpu_hour_cost);
  return cost > 0 ? 1 / cost : 0;
}

std::uint64_t most_completed(std::span<const GpuPlan> plans) {
  std::uint64_t most = 0;
  for (const GpuPlan& plan : plans) most = std::max(most, plan.proposed().completed());
  return most;
}

std::string order_sentence(const ServerArgs& args, bool by_cost) {
  return fmt::format("\nOrder: {}{}, within 1 % the lower latency\n",
                     args.goodput.any() ? "those that hold --slo, then " : "",
                     by_cost ? "the lowest cost of a million tokens (--gpu-hour-cost)"
                             : "the most requests/s per GPU (no --gpu-hour-cost)");
}

// Types of GPU that serve, but not what was asked for.
std::string short_of(const PlanQuestion& question, const ServerArgs& args, std::span<const GpuPlan> plans) {
  std::string text;
  const std::uint64_t most = most_completed(plans);
  for (const GpuPlan& plan : plans) {
    const proto::RunReport& run = plan.proposed();
    if (run.completed() < most)
      text += fmt::format("{}: serves {} of the {} requests that others do\n", plan.hardware, run.completed(),
                          most);
    if (holds(run, question.share)) continue;
    text += args.max_goodput_rate
                ? fmt::format("{}: {}\n", plan.hardware, run.max_goodput_search().message())
                : fmt::format("{}: does not hold: {:.2f} % of requests within {}, not {} %\n", plan.hardware,
                              100 * run.goodput_share(), to_string(args.goodput),
                              format_real(100 * question.share));
  }
  return text;
}

}  // namespace

void order_gpu_types(const PlanQuestion& question, std::vector<GpuPlan>& plans) {
  const bool by_cost = have_costs(plans);
  const std::uint64_t most = most_completed(plans);
  const auto rank_of = [&](const GpuPlan& plan) {
    const proto::RunReport& run = plan.proposed();
    return std::pair(run.completed() < most, !holds(run, question.share));
  };
  for (auto next = plans.begin(); next != plans.end(); ++next) {
    const auto first_rank = rank_of(*std::min_element(
        next, plans.end(), [&](const GpuPlan& a, const GpuPlan& b) { return rank_of(a) < rank_of(b); }));
    double highest = 0;
    for (auto plan = next; plan != plans.end(); ++plan) {
      if (rank_of(*plan) == first_rank) highest = std::max(highest, worth_of(*plan, by_cost));
    }
    auto best = plans.end();
    for (auto plan = next; plan != plans.end(); ++plan) {
      if (rank_of(*plan) != first_rank || worth_of(*plan, by_cost) < highest * (1 - kTie)) continue;
      if (best == plans.end() ||
          plan->proposed().mean_e2e_latency_ms() < best->proposed().mean_e2e_latency_ms())
        best = plan;
    }
    std::rotate(next, best, best + 1);
  }
}

std::string gpu_types_text(const PlanQuestion& question, const ServerArgs& args,
                           std::span<const GpuPlan> plans, std::span<const GpuRefusal> refusals, bool colour,
                           int width) {
  const bool by_cost = have_costs(plans);
  TextTable table{.width = width, .less_wanted = less_wanted_columns()};
  std::vector<std::string> head = {"  GPU", "GPUs", "req/s/GPU"};
  if (by_cost) head.emplace_back("cost/M tok");
  append(head, goodput_heads(plans.front().report));
  append(head, {"tok/s/GPU", "TTFT ms", "p99", "TPOT ms", "p99", "latency s"});
  table.rows.push_back(std::move(head));
  std::string described, commands, searched;
  for (const GpuPlan& plan : plans) {
    const proto::RunReport& run = plan.proposed();
    const bool first = &plan == &plans.front();
    std::vector<std::string> row = {fmt::format("{} {}", first ? "*" : " ", plan.hardware),
                                    std::to_string(num_gpus(run)), format_figure(requests_per_second(run))};
    if (by_cost) row.push_back(format_figure(cost_per_million_tokens(run, *plan.gpu_hour_cost)));
    append(row, goodput_cells(plans.front().report, run));
    append(row, {format_figure(run.total_throughput() / num_gpus(run)), format_figure(run.mean_ttft_ms()),
                 format_figure(run.p99_ttft_ms()), format_figure(run.mean_tpot_ms()),
                 format_figure(run.p99_tpot_ms()), format_figure(run.mean_e2e_latency_ms() / 1e3)});
    table.rows.push_back(std::move(row));
    described +=
        fmt::format("  {}: {}\n    bound by {}\n", plan.hardware, setting_name(plan.report, run.settings()),
                    plan.bound_of_run(plan.answer.order.front()));
    if (run.has_error_bands()) described += fmt::format("    likely if measured: {}\n", error_band_text(run));
    for (const std::string& line : other_fleets(question, args, plan))
      described += fmt::format("    {}\n", line);
    for (const std::string& command : launch_commands(plan.setting_of(plan.answer.order.front()).args))
      commands += fmt::format("  {}  {}\n", plan.hardware, command);
    searched += fmt::format("\n{}:{}", plan.hardware, searched_text(question, plan));
  }
  std::string text = to_text(table, colour) + rate_line(plans.front().report) + order_sentence(args, by_cost);
  for (const GpuRefusal& refusal : refusals)
    text += fmt::format("{}: no plan: {}\n", refusal.hardware, refusal.reason);
  text += short_of(question, args, plans);
  return text + "\n" + described + "\nLaunch:\n" + commands + searched;
}

}  // namespace tpsim::launch
