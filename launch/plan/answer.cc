#include "launch/plan/answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "launch/plan/heads.h"
#include "launch/plan/ranking.h"
#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "launch/report/text_table.h"
#include "launch/simulation/launch_line.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// Seconds of a kind of work, summed over a rank's passes of a kind.
struct Part {
  std::string_view passes, work;
  double seconds = 0;
};

std::vector<Part> parts_of(const proto::RunReport& run) {
  const bool experts = std::ranges::any_of(run.calibration(), [](const proto::Calibration& row) {
    return row.operator_class().starts_with("moe");
  });
  std::vector<Part> parts;
  const auto add = [&](std::string_view passes, const proto::PassSeconds& seconds) {
    parts.push_back({passes, "attention", seconds.attention()});
    parts.push_back({passes, experts ? "matrix products and experts" : "matrix products", seconds.gemm()});
    parts.push_back({passes, "links between GPUs", seconds.collective()});
    parts.push_back({passes, "norms, sampling and the like", seconds.other()});
    parts.push_back({passes, "the host's launches", seconds.launch()});
    parts.push_back({passes, "waiting for other ranks", seconds.wait()});
  };
  // The first server's; with pairs the first one that prefills and the last one that decodes.
  const auto add_rank = [&add](const proto::RankReport& rank) {
    add("prefill", rank.prefill());
    add("decode", rank.decode());
    add("mixed passes", rank.mixed());
  };
  add_rank(run.ranks(0));
  if (run.replicas_size() > 0 && !run.replicas(0).role().empty()) add_rank(run.ranks(run.ranks_size() - 1));
  return parts;
}

std::string percent_of(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "0 %";
}

const Settings* tied(const proto::ComparisonReport& report, const proto::RunReport& run) {
  for (const proto::Tie& tie : report.ties()) {
    if (tie.backend() == run.backend() && same(tie.settings(), run.settings()) && tie.difference() <= kAsGood)
      return &tie.settings();
  }
  return nullptr;
}

std::string levels_sentence(const PlanQuestion& question, const ServerArgs& args, const GpuPlan& plan) {
  if (!args.goodput.any()) return "";
  const proto::RunReport& first = plan.proposed();
  if (args.max_goodput_rate) {
    const std::string& message = first.max_goodput_search().message();
    return holds(first, question.share)
               ? fmt::format("\nHolds: {}\n", message)
               : fmt::format("\nNo setting holds: {}; try more GPUs or wider levels\n", message);
  }
  const std::string share = format_real(100 * question.share);
  if (holds(first, question.share))
    return fmt::format("\nHolds: {:.2f} % of requests within {} (asked: {} %)\n", 100 * first.goodput_share(),
                       to_string(args.goodput), share);
  return fmt::format(
      "\nNo setting holds: the best keeps {:.2f} % of requests within {}, not {} %; try more GPUs, a lower "
      "rate or "
      "wider levels\n",
      100 * first.goodput_share(), to_string(args.goodput), share);
}

// The best of other layouts, where they fall short of the service levels that some keep.
std::string nearly(const PlanQuestion& question, const GpuPlan& plan) {
  constexpr std::size_t kNamed = 3;
  std::vector<const PlanSearch::Finalist*> others;
  std::set<std::string> layouts;
  for (const std::size_t setting : plan.settings) layouts.insert(plan.space.layouts[setting]);
  for (const PlanSearch::Finalist& finalist : plan.search.finalists)
    if (std::ranges::find(plan.settings, finalist.setting) == plan.settings.end())
      others.push_back(&finalist);
  std::ranges::stable_sort(others, [](const auto* a, const auto* b) {
    return a->report.goodput_share() > b->report.goodput_share();
  });
  std::string text;
  std::size_t named = 0;
  for (const PlanSearch::Finalist* const other : others) {
    if (named == kNamed || !layouts.insert(plan.space.layouts[other->setting]).second) continue;
    const proto::RunReport& run = other->report;
    text += fmt::format("  {}: {:.1f} % within the levels, p99 of TTFT {} ms, of TPOT {} ms\n",
                        setting_name(plan.report, run.settings()), 100 * run.goodput_share(),
                        format_figure(run.p99_ttft_ms()), format_figure(run.p99_tpot_ms()));
    ++named;
  }
  return text.empty() ? text
                      : fmt::format("\nDo not keep {} % within the levels:\n{}",
                                    format_real(100 * question.share), text);
}

// What speed hangs on and nobody knows.
std::string assumed(const GpuPlan& plan) {
  if (plan.assumptions.empty()) return "";
  std::string text = "\nAssumed, for nobody said how many drafts are right (--speculative-accept-rates):\n";
  for (const PlanAssumption& one : plan.assumptions) {
    const auto at = std::ranges::find(plan.answer.shown, one.run) - plan.answer.shown.begin();
    text += fmt::format("  {} keeps {:.2f} tokens of a step, {} ({})\n", at + 1, one.kept, one.acceptance.of,
                        one.acceptance.source);
    if (one.pays_from)
      text += fmt::format("    pays from {:.2f} tokens on, against {}\n", *one.pays_from,
                          setting_name(plan.report, plan.report.runs(one.against).settings()));
  }
  return text;
}

std::string searched(const PlanSpace& space, const PlanSearch& search) {
  std::uint64_t refused = 0;
  for (const auto& [reason, count] : search.refused) refused += count;
  std::string text =
      fmt::format("\nSearched: {} settings; {} cannot be carried out, {} are the same as others",
                  space.settings.size(), refused, search.twins);
  if (search.passed_over > 0)
    text += fmt::format("; {} were passed over, for their like did worse", search.passed_over);
  for (const PlanSearch::Round& round : search.rounds) {
    text += fmt::format("; {} served {} requests", round.settings, round.requests);
    if (&round == &search.rounds.front() && search.hopeless > 0)
      text += fmt::format(" ({} were stopped, too slow to be among the best)", search.hopeless);
  }
  return text + "\n";
}

std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) out += c;
    if (digit && (out.empty() || out.back() != '#')) out += '#';
  }
  return out;
}

std::string explanation(const PlanSpace& space, const PlanSearch& search) {
  // Sentences that differ in numbers alone are one reason.
  std::map<std::string, std::pair<std::uint32_t, std::string>> alike;
  for (const auto& [reason, count] : search.refused) {
    auto& [settings, sentence] = alike[without_numbers(reason)];
    settings += count;
    if (sentence.empty()) sentence = reason;
  }
  std::vector<std::pair<std::uint32_t, std::string>> reasons;
  for (auto& [form, reason] : alike) reasons.push_back(std::move(reason));
  std::ranges::stable_sort(reasons, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = reasons.empty() ? "" : "\nCannot be carried out (settings, why):\n";
  for (const auto& [count, reason] : reasons) text += fmt::format("  {:>6}  {}\n", count, reason);
  const auto& others = space.backends.others;
  if (others.refused_size() > 0) text += "\nBackends that cannot serve it:\n";
  for (const proto::RefusedSetting& refused : others.refused())
    text += fmt::format("  {}: {}\n", refused.settings().begin()->second, refused.reason());
  for (const std::string& left_out : others.left_out()) text += fmt::format("\nLeft out: {}\n", left_out);
  if (!speculates(space.settings.front()))
    text +=
        "\nLeft out: NGRAM and STANDALONE speculation, for how many drafts are right hangs on the text; plan "
        "with one by --speculative-algorithm NGRAM --speculative-accept-rates RATE (0.45 with prose to 0.7 "
        "with code were published)\n";
  return text;
}

}  // namespace

std::string bound_of(const proto::RunReport& run) {
  std::string text;
  if (run.ranks_size() > 0) {
    const std::vector<Part> parts = parts_of(run);
    double all = 0;
    for (const Part& part : parts) all += part.seconds;
    const Part& most = *std::ranges::max_element(parts, {}, &Part::seconds);
    text = fmt::format("{} of {}: {} of the GPUs' busy time", most.work, most.passes,
                       percent_of(most.seconds, all));
  }
  constexpr double kFull = 0.95, kIdle = 0.5;
  if (run.peak_kv_usage() >= kFull)
    text += fmt::format("; the KV pool is full at times ({} retractions)", run.retractions());
  if (run.gpu_busy_fraction() < kIdle)
    text += fmt::format("; GPUs are idle {:.0f} % of the time", 100 * (1 - run.gpu_busy_fraction()));
  if (run.has_overload()) text += "; requests come faster than they are served";
  return text;
}

std::string GpuPlan::bound_of_run(int run) const {
  const std::size_t setting = settings[static_cast<std::size_t>(run)];
  return bound_of(std::ranges::find(search.finalists, setting, &PlanSearch::Finalist::setting)->report);
}

double cost_per_million_tokens(const proto::RunReport& run, double gpu_hour_cost) {
  double throughput = run.total_throughput();
  if (run.has_max_goodput_rate() && std::isfinite(run.max_goodput_rate()) && run.request_throughput() > 0)
    throughput *= run.max_goodput_rate() / run.request_throughput();
  return throughput > 0 ? num_gpus(run) * gpu_hour_cost / 3600 / throughput * 1e6 : 0;
}

PlanAnswer answer_plan(const PlanQuestion& question, const PlanSpace& space,
                       const std::vector<std::size_t>& settings, const proto::ComparisonReport& report) {
  PlanAnswer answer;
  answer.order = rank_runs(report, question.share, static_cast<std::size_t>(report.runs_size()));
  if (answer.order.empty()) return answer;
  const bool held = holds(report.runs(answer.order.front()), question.share);
  const auto simplest = std::ranges::min_element(answer.order, {}, [&](int i) {
    const proto::RunReport& run = report.runs(i);
    const bool eligible =
        i == answer.order.front() || (tied(report, run) != nullptr && holds(run, question.share) == held);
    return eligible ? run.settings_size() : report.sweep().axes_size() + 1;
  });
  std::rotate(answer.order.begin(), simplest, simplest + 1);
  std::set<std::string> layouts;
  for (const int i : answer.order) {
    if (answer.shown.size() < kShown &&
        layouts.insert(space.layouts[settings[static_cast<std::size_t>(i)]]).second)
      answer.shown.push_back(i);
  }
  return answer;
}

std::vector<std::string> other_fleets(const PlanQuestion& question, const ServerArgs& args,
                                      const GpuPlan& plan) {
  std::vector<std::string> lines;
  for (const FleetTooSmall& fleet : plan.too_small)
    lines.push_back(fmt::format("{} {}: {}", fleet.gpus, fleet.gpus == 1 ? "GPU" : "GPUs", fleet.reason));
  const std::uint32_t gpus = num_gpus(plan.proposed());
  if (args.goodput.any() && !args.max_goodput_rate && holds(plan.proposed(), question.share) &&
      gpus < question.gpus.back())
    lines.push_back(fmt::format("More than {} were not tried, for these hold", gpus));
  return lines;
}

std::string plan_text(const PlanQuestion& question, const ServerArgs& args, const GpuPlan& plan, bool colour,
                      int width) {
  const proto::ComparisonReport& report = plan.report;
  const PlanAnswer& answer = plan.answer;
  TextTable table{.width = width, .less_wanted = less_wanted_columns()};
  std::vector<std::string> head = {"  "};
  if (question.gpus.size() > 1) head.emplace_back("GPUs");
  append(head, goodput_heads(report));
  append(head, {"tok/s/GPU", "TTFT ms", "p99", "TPOT ms", "p99", "latency s"});
  if (plan.gpu_hour_cost) head.emplace_back("cost/M tok");
  table.rows.push_back(std::move(head));
  std::string described, commands;
  for (std::size_t rank = 0; rank < answer.shown.size(); ++rank) {
    const proto::RunReport& run = report.runs(answer.shown[rank]);
    const char* const mark = rank == 0 ? "*" : run.pareto() ? "+" : " ";
    std::vector<std::string> row = {fmt::format("{}{}", mark, rank + 1)};
    if (question.gpus.size() > 1) row.push_back(std::to_string(num_gpus(run)));
    append(row, goodput_cells(report, run));
    append(row, {format_figure(run.total_throughput() / num_gpus(run)), format_figure(run.mean_ttft_ms()),
                 format_figure(run.p99_ttft_ms()), format_figure(run.mean_tpot_ms()),
                 format_figure(run.p99_tpot_ms()), format_figure(run.mean_e2e_latency_ms() / 1e3)});
    if (plan.gpu_hour_cost) row.push_back(format_figure(cost_per_million_tokens(run, *plan.gpu_hour_cost)));
    table.rows.push_back(std::move(row));
    described += fmt::format("  {} {}\n    bound by {}\n", rank + 1, setting_name(report, run.settings()),
                             plan.bound_of_run(answer.shown[rank]));
    for (const std::string& command : launch_commands(plan.setting_of(answer.shown[rank]).args))
      commands += fmt::format("  {} {}\n", rank + 1, command);
  }
  std::string text = no_server_lines(report) + to_text(table, colour) + rate_line(report);
  text += "\n* proposed   + on the Pareto front of tokens/s against latency; one of each layout\n";
  text += "\n" + described + assumed(plan) + levels_sentence(question, args, plan);
  for (const std::string& line : other_fleets(question, args, plan)) text += line + "\n";
  text += nearly(question, plan);
  text += fmt::format("\nBest: {} ({})\n", setting_name(report, report.best_setting()), report.best_reason());
  text += certainty_line(report);
  const proto::RunReport& proposed = plan.proposed();
  if (!is_best(report, proposed))
    text += fmt::format("Proposed: {}, with fewer flags and predicted to be as good within {:.0f} %\n",
                        setting_name(report, proposed.settings()), 100 * kAsGood);
  if (proposed.has_error_bands()) text += fmt::format("Likely if measured: {}\n", error_band_text(proposed));
  text += "\nLaunch:\n" + commands;
  return text + searched_text(question, plan);
}

std::string searched_text(const PlanQuestion& question, const GpuPlan& plan) {
  const std::string text = searched(plan.space, plan.search);
  return question.explain ? text + explanation(plan.space, plan.search) : text;
}

}  // namespace tpsim::launch
