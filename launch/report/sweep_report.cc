#include "launch/report/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "launch/report/csv_writer.h"
#include "launch/report/json_writer.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

constexpr std::array<std::string_view, 3> kLoadAxes = {"request_rate", "max_concurrency", "time_scale"};

// The part of `settings` that is the load, as a key that sorts.
std::map<std::string, std::string> load_of(const Settings& settings) {
  std::map<std::string, std::string> load;
  for (const std::string_view axis : kLoadAxes) {
    const auto value = settings.find(std::string(axis));
    if (value != settings.end()) load.emplace(value->first, value->second);
  }
  return load;
}

std::string value_of(const Settings& settings, const std::string& axis) {
  const auto value = settings.find(axis);
  return value == settings.end() ? "" : value->second;
}

std::vector<std::string> axis_cells(const proto::ComparisonReport& report, const std::string& mark,
                                    const Settings& settings) {
  std::vector<std::string> cells;
  for (const proto::SweepAxis& axis : report.sweep().axes())
    cells.push_back((cells.empty() ? mark : "") + value_of(settings, axis.flag()));
  return cells;
}

std::string settings_table(const proto::ComparisonReport& report, bool all, bool colour, int width) {
  const bool per_gpu = RateUnit(report).per_gpu();
  TextTable table{.width = width, .less_wanted = less_wanted_columns()};
  std::vector<std::string> head;
  for (const proto::SweepAxis& axis : report.sweep().axes()) {
    std::string title = axis.flag() == kBackendAxis ? "backend" : axis.flag();
    std::replace(title.begin(), title.end(), '_', ' ');
    head.push_back((head.empty() ? "  " : "") + title);
  }
  table.left_columns = head.size();
  head.emplace_back("req/s");
  append(head, goodput_heads(report));
  head.emplace_back("tok/s");
  if (per_gpu) append(head, {"tok/s/GPU", "req/s/GPU"});
  const bool costs = std::ranges::any_of(report.runs(), &proto::RunReport::has_cost);
  if (costs) append(head, {"cost/M tok", "cost/1k req"});
  append(head, {"TTFT ms", "p99", "TPOT ms", "p99", "latency s", "hit %", "KV peak %", "retracted"});
  table.rows.push_back(std::move(head));
  for (const proto::RunReport& run : report.runs()) {
    if (!all && !stands_out(report, run)) continue;
    const std::string mark = is_best(report, run) ? "* " : run.pareto() ? "+ " : "  ";
    std::vector<std::string> row = axis_cells(report, mark, run.settings());
    row.push_back(format_figure(run.request_throughput()));
    append(row, goodput_cells(report, run));
    row.push_back(format_figure(run.total_throughput()));
    if (per_gpu)
      append(row, {format_figure(run.total_throughput() / num_gpus(run)),
                   format_figure(run.request_throughput() / num_gpus(run))});
    if (costs)
      append(row,
             {format_figure(run.cost_per_million_tokens()), format_figure(run.cost_per_thousand_requests())});
    append(row, {format_figure(run.mean_ttft_ms()), format_figure(run.p99_ttft_ms()),
                 format_figure(run.mean_tpot_ms()), format_figure(run.p99_tpot_ms()),
                 format_figure(run.mean_e2e_latency_ms() / 1e3), hit_rate_cell(run),
                 fmt::format("{:.1f}", run.peak_kv_usage() * 100), std::to_string(run.retractions())});
    table.rows.push_back(std::move(row));
  }
  return to_text(table, colour) + hit_rate_line(report);
}

std::string refused_lines(const proto::ComparisonReport& report, bool all) {
  std::string out;
  if (!report.refused().empty())
    out = fmt::format("\nNot possible ({} of {} settings):\n", report.refused_size(),
                      report.refused_size() + static_cast<int>(report.planned_runs()));
  std::set<std::string> reasons;
  for (const proto::RefusedSetting& refused : report.refused()) {
    // Of many settings, one for each reason.
    if (!all && !reasons.insert(refused.reason()).second) continue;
    out += fmt::format("  {}: {}\n", setting_name(report, refused.settings()), refused.reason());
  }
  for (const std::string& left_out : report.left_out()) out += fmt::format("\nLeft out: {}\n", left_out);
  return out;
}

}  // namespace

void mark_pareto(proto::ComparisonReport& report) {
  const std::vector<const proto::RunReport*> runs = comparable_runs(report);
  const RateUnit unit(report);
  const auto dominated = [&](const proto::RunReport& run) {
    return std::any_of(runs.begin(), runs.end(), [&](const proto::RunReport* other) {
      const double more = other->total_throughput() / unit.of(*other) - run.total_throughput() / unit.of(run);
      const double later = other->mean_e2e_latency_ms() - run.mean_e2e_latency_ms();
      return more >= 0 && later <= 0 && (more > 0 || later < 0);
    });
  };
  for (proto::RunReport& run : *report.mutable_runs())
    run.set_pareto(std::find(runs.begin(), runs.end(), &run) != runs.end() && !dominated(run));
}

void choose_best_by_load(proto::ComparisonReport& report) {
  report.clear_best_by_load();
  if (report.best().empty()) return;
  std::vector<std::map<std::string, std::string>> loads;  // in the order of the runs
  std::vector<std::vector<const proto::RunReport*>> runs;
  for (const proto::RunReport* run : comparable_runs(report)) {
    const auto load = load_of(run->settings());
    if (load.empty()) return;
    const auto known = std::find(loads.begin(), loads.end(), load);
    const auto at = static_cast<std::size_t>(known - loads.begin());
    if (known == loads.end()) {
      loads.push_back(load);
      runs.emplace_back();
    }
    runs[at].push_back(run);
  }
  for (std::size_t i = 0; i < loads.size(); ++i) {
    // Nothing else varies: there is one setting at each load.
    if (loads[i].size() == runs[i].front()->settings().size()) continue;
    const proto::RunReport& run = *choose_among(report, runs[i]).best;
    proto::BestAtLoad& best = *report.add_best_by_load();
    best.mutable_load()->insert(loads[i].begin(), loads[i].end());
    *best.mutable_setting() = run.settings();
    best.set_backend(run.backend());
    best.set_total_throughput(run.total_throughput());
    best.set_mean_e2e_latency_ms(run.mean_e2e_latency_ms());
  }
}

bool stands_out(const proto::ComparisonReport& report, const proto::RunReport& run) {
  return run.pareto() || is_best(report, run) ||
         std::any_of(report.best_by_load().begin(), report.best_by_load().end(),
                     [&run](const proto::BestAtLoad& best) {
                       return best.backend() == run.backend() && same(best.setting(), run.settings());
                     });
}

void keep_what_stands_out(proto::ComparisonReport& report) {
  if (report.runs_size() <= kAllSettingsShown) return;
  for (proto::RunReport& run : *report.mutable_runs()) {
    if (stands_out(report, run)) continue;
    run.clear_timeline();
    run.clear_ranks();
    run.clear_ttft_histogram();
    run.clear_tpot_histogram();
    run.clear_itl_histogram();
  }
}

std::string sweep_table(const proto::ComparisonReport& report, bool colour, int width) {
  const bool all = report.runs_size() + report.refused_size() <= kAllSettingsShown;
  std::string out = no_server_lines(report) + settings_table(report, all, colour, width);
  out += fmt::format("\n* best   + on the Pareto front of total tokens/s{} against mean latency",
                     RateUnit(report).name());
  if (!all) out += fmt::format("; {} settings are in the report", report.runs_size() + report.refused_size());
  out += fmt::format("\n{}{}", refused_lines(report, all), goodput_lines(report));
  for (const proto::BestAtLoad& best : report.best_by_load()) {
    Settings rest = best.setting();
    for (const auto& [axis, value] : best.load()) rest.erase(axis);
    out += fmt::format("\nBest at {}: {} ({} tokens/s, mean latency {:.2f} s)",
                       setting_name(report, best.load()), setting_name(report, rest),
                       format_figure(best.total_throughput()), best.mean_e2e_latency_ms() / 1e3);
  }
  if (!report.best_by_load().empty()) out += "\n";
  if (report.best().empty()) return out + "\nNo best setting: " + report.best_reason() + "\n";
  if (all) out += error_band_lines(report) + extrapolation_lines(report);
  return out +
         fmt::format("\nBest: {} ({})\n", setting_name(report, report.best_setting()), report.best_reason()) +
         certainty_line(report);
}

std::string sweep_csv(const proto::ComparisonReport& report) {
  // Figures are the numbers of a run; its version is none. One that is null may be a number of another run.
  std::vector<std::string> figures;
  const nlohmann::ordered_json any = to_json(proto::RunReport());
  for (const auto& [name, value] : any.items()) {
    const bool number = value.is_number() || name == "request_goodput" || name == "goodput_share" ||
                        name == "max_goodput_rate";
    if (number && name != "version") figures.push_back(name);
  }
  if (std::ranges::any_of(report.runs(), &proto::RunReport::has_cost))
    for (const char* of : {"cost", "cost_per_million_tokens", "cost_per_thousand_requests"})
      figures.emplace_back(of);
  std::string out;
  for (const proto::SweepAxis& axis : report.sweep().axes()) out += axis.flag() + ",";
  out += fmt::format("backend,best,pareto,not_possible,{}\n", fmt::join(figures, ","));
  const auto axes = [&report, &out](const Settings& settings) {
    for (const proto::SweepAxis& axis : report.sweep().axes())
      out += csv_word(value_of(settings, axis.flag())) + ",";
  };
  for (const proto::RunReport& run : report.runs()) {
    axes(run.settings());
    out += fmt::format("{},{},{},", run.backend(), is_best(report, run), run.pareto());
    nlohmann::ordered_json json = to_json(run);
    for (const std::string& name : figures)
      out += fmt::format(",{}", json[name].is_number() ? json[name].dump() : "");
    out += "\n";
  }
  for (const proto::RefusedSetting& refused : report.refused()) {
    axes(refused.settings());
    out += ",false,false," + csv_word(refused.reason()) + std::string(figures.size(), ',') + "\n";
  }
  return out;
}

}  // namespace tpsim::launch
