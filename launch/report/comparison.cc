#include "launch/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

constexpr double kTie = 0.01;

// Requests and generated tokens. A wall clock's run computes: where its backends round differently, one may
// stop a token earlier and is no less served.
std::pair<std::uint64_t, std::uint64_t> work_of(const proto::RunReport& run) {
  return {run.completed(), run.clock() == "wall" ? 0 : run.total_output_tokens()};
}

// The finished runs beside `runs`, as the end of a reason; empty where there are none.
std::string served_less(const proto::ComparisonReport& report,
                        const std::vector<const proto::RunReport*>& runs) {
  constexpr int kNamed = 3;
  std::string names;
  int others = 0;
  for (const proto::RunReport& run : report.runs()) {
    if (run.stopped_early() || std::find(runs.begin(), runs.end(), &run) != runs.end()) continue;
    if (++others > kNamed) continue;
    names += fmt::format("{}{} ({} requests, {} generated tokens)", others == 1 ? "" : ", ",
                         run_name(report, run), run.completed(), run.total_output_tokens());
  }
  if (others == 0) return "";
  if (others > kNamed) names += fmt::format(" and {} more", others - kNamed);
  return "; not compared, because less was served: " + names;
}

// A figure that is chosen by before throughput and latency, where the user asked for it.
struct Goal {
  std::string_view name;
  std::optional<double> (*value)(const proto::RunReport& run);  // requests per second
};

std::optional<double> max_goodput_rate(const proto::RunReport& run) {
  if (!run.has_max_goodput_search() || run.max_goodput_search().outcome() == "stopped") return std::nullopt;
  if (run.max_goodput_search().outcome() == "unlimited") return std::numeric_limits<double>::infinity();
  return run.max_goodput_rate();
}

std::optional<double> request_goodput(const proto::RunReport& run) {
  return run.has_request_goodput() ? std::optional(run.request_goodput()) : std::nullopt;
}

constexpr Goal kGoals[] = {{"rate within the service levels", max_goodput_rate},
                           {"goodput", request_goodput}};

std::string rate_text(double rate, const RateUnit& unit) {
  return std::isinf(rate) ? "without limit"
                          : fmt::format("{} requests/s{}", format_figure(rate), unit.name());
}

// Leaves the runs within 1 % of the highest and adds that to `prefix`, or returns the only one. Nothing
// changes where a run has no such figure.
std::optional<Choice> narrow(const proto::ComparisonReport& report, const Goal& goal,
                             std::vector<const proto::RunReport*>& runs, std::string& prefix) {
  const RateUnit unit(report);
  const auto value_of = [&](const proto::RunReport* run) { return *goal.value(*run) / unit.of(*run); };
  const proto::RunReport* best = nullptr;
  double highest = 0;
  for (const proto::RunReport* run : runs) {
    if (!goal.value(*run)) return std::nullopt;
    if (best != nullptr && value_of(run) <= highest) continue;
    best = run;
    highest = value_of(run);
  }
  std::vector<const proto::RunReport*> left;
  const proto::RunReport* second = nullptr;
  for (const proto::RunReport* run : runs) {
    if (value_of(run) >= highest * (1 - kTie)) left.push_back(run);
    if (run != best && (second == nullptr || value_of(run) > value_of(second))) second = run;
  }
  if (left.size() == 1 && second != nullptr) {
    return Choice{
        best, fmt::format("{}highest {}: {}, against {} of {}", prefix, goal.name, rate_text(highest, unit),
                          rate_text(value_of(second), unit), run_name(report, *second))};
  }
  runs = std::move(left);
  if (second != nullptr)
    prefix += fmt::format("{} {}, within 1 % of the highest; of those ", goal.name, rate_text(highest, unit));
  return std::nullopt;
}

}  // namespace

std::string flag_of(const proto::SweepAxis& axis) {
  std::string flag = "--" + axis.flag();
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::uint32_t num_gpus(const proto::RunReport& run) {
  // Servers that prefill and servers that decode may be of different sizes.
  if (run.replicas_size() > 0 && !run.replicas(0).role().empty() && run.ranks_size() > 0)
    return static_cast<std::uint32_t>(run.ranks_size());
  // So may those of a fleet.
  std::uint32_t gpus = 0;
  for (const proto::ReplicaReport& replica : run.replicas()) gpus += replica.gpus();
  if (gpus > 0) return gpus;
  const auto replicas = static_cast<std::uint32_t>(std::max(1, run.replicas_size()));
  return run.tp_size() * (run.has_pp_size() ? run.pp_size() : 1) * replicas;
}

RateUnit::RateUnit(const proto::ComparisonReport& report) {
  for (const proto::RunReport& run : report.runs())
    per_gpu_ = per_gpu_ || num_gpus(run) != num_gpus(report.runs(0));
}

std::string setting_name(const proto::ComparisonReport& report, const Settings& settings) {
  std::string name;
  for (const proto::SweepAxis& axis : report.sweep().axes()) {
    const auto value = settings.find(axis.flag());
    if (value == settings.end()) continue;
    name += name.empty() ? "" : ", ";
    name += axis.flag() == kBackendAxis ? value->second : flag_of(axis) + " " + value->second;
  }
  return name;
}

std::string run_name(const proto::ComparisonReport& report, const proto::RunReport& run) {
  return run.settings().empty() ? run.backend() : setting_name(report, run.settings());
}

bool same(const Settings& a, const Settings& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&b](const auto& entry) {
           const auto other = b.find(entry.first);
           return other != b.end() && other->second == entry.second;
         });
}

std::string hit_rate_cell(const proto::RunReport& run) {
  return run.hit_rate_unknown() ? "?" : fmt::format("{:.1f}", run.cache_hit_rate() * 100);
}

std::string hit_rate_line(const proto::ComparisonReport& report) {
  const bool unknown = std::any_of(report.runs().begin(), report.runs().end(),
                                   [](const proto::RunReport& run) { return run.hit_rate_unknown(); });
  return unknown ? "\nHit rate unknown: the trace says how long prompts are, not what they hold\n" : "";
}

std::vector<std::string> less_wanted_columns() {
  return {"retracted", "KV peak %", "ITL p99",     "input tok/s", "hit %",
          "p99",       "p99",       "cost/1k req", "req/s/GPU",   "tok/s/GPU"};
}

bool is_best(const proto::ComparisonReport& report, const proto::RunReport& run) {
  return !report.best().empty() && run.backend() == report.best() &&
         same(run.settings(), report.best_setting());
}

std::vector<const proto::RunReport*> comparable_runs(const proto::ComparisonReport& report) {
  std::pair<std::uint64_t, std::uint64_t> most;
  for (const proto::RunReport& run : report.runs()) {
    if (!run.stopped_early()) most = std::max(most, work_of(run));
  }
  std::vector<const proto::RunReport*> runs;
  for (const proto::RunReport& run : report.runs()) {
    if (!run.stopped_early() && run.completed() > 0 && work_of(run) == most) runs.push_back(&run);
  }
  return runs;
}

Choice choose_among(const proto::ComparisonReport& report, const std::vector<const proto::RunReport*>& all) {
  if (all.empty()) return {};
  std::string prefix;
  std::vector<const proto::RunReport*> runs = all;
  const RateUnit unit(report);
  const auto overloaded = [](const proto::RunReport* run) { return run->has_overload(); };
  if (unit.per_gpu() && std::ranges::any_of(runs, overloaded) && !std::ranges::all_of(runs, overloaded)) {
    std::erase_if(runs, overloaded);
    prefix = "of those that keep up with the load ";
  }
  for (const Goal& goal : kGoals) {
    const std::optional<Choice> choice = narrow(report, goal, runs, prefix);
    if (choice) return *choice;
  }
  const auto throughput = [&unit](const proto::RunReport* run) {
    return run->total_throughput() / unit.of(*run);
  };
  double highest = 0;
  for (const proto::RunReport* run : runs) highest = std::max(highest, throughput(run));
  const auto lower_latency = [&](const proto::RunReport* run, const proto::RunReport* than) {
    if (throughput(run) < highest * (1 - kTie)) return false;
    return than == nullptr || run->mean_e2e_latency_ms() < than->mean_e2e_latency_ms();
  };
  Choice choice;
  for (const proto::RunReport* run : runs) {
    if (lower_latency(run, choice.best)) choice.best = run;
  }
  const proto::RunReport* rival = nullptr;   // the next best by the same rule
  const proto::RunReport* second = nullptr;  // the next highest throughput
  for (const proto::RunReport* run : runs) {
    if (run == choice.best) continue;
    if (lower_latency(run, rival)) rival = run;
    if (second == nullptr || throughput(run) > throughput(second)) second = run;
  }
  const proto::RunReport& best = *choice.best;
  if (rival != nullptr) {
    const double more = rival->mean_e2e_latency_ms() / best.mean_e2e_latency_ms() - 1;
    constexpr double kAsGood = 0.002;  // prices are not that exact
    choice.reason = fmt::format(
        "{} tokens/s{}, within 1 % of the highest throughput, and the lowest mean latency of those: {:.2f} s",
        format_figure(throughput(&best)), unit.name(), best.mean_e2e_latency_ms() / 1e3);
    choice.reason +=
        more < kAsGood
            ? fmt::format(", but {} is as good ({:.1f} % more)", run_name(report, *rival), more * 100)
            : fmt::format(" against {:.2f} s of {}", rival->mean_e2e_latency_ms() / 1e3,
                          run_name(report, *rival));
  } else if (second != nullptr) {
    choice.reason = fmt::format(
        "highest throughput: {} tokens/s{}, {:.1f} % above {}", format_figure(throughput(&best)), unit.name(),
        (throughput(&best) / throughput(second) - 1) * 100, run_name(report, *second));
  } else {
    choice.reason = report.runs_size() == 1 ? "the only run" : "the only one that served as many requests";
  }
  choice.reason.insert(0, prefix);
  return choice;
}

void choose_best(proto::ComparisonReport& report) {
  report.clear_best();
  report.clear_best_setting();
  const std::vector<const proto::RunReport*> runs = comparable_runs(report);
  const int finished = static_cast<int>(std::count_if(report.runs().begin(), report.runs().end(),
                                                      [](const auto& r) { return !r.stopped_early(); }));
  const int planned = std::max(static_cast<int>(report.planned_runs()), report.runs_size());
  if (finished < planned && runs.size() < 2) {
    report.set_best_reason(
        runs.empty() ? fmt::format("stopped early, before any of {} had served every request", planned)
                     : fmt::format("stopped early: only {} has served every request, and nothing else can be "
                                   "compared with it",
                                   run_name(report, *runs.front())));
    return;
  }
  const Choice choice = choose_among(report, runs);
  if (choice.best == nullptr) {
    report.set_best_reason("no run completed a request");
    return;
  }
  report.set_best(choice.best->backend());
  *report.mutable_best_setting() = choice.best->settings();
  report.set_best_reason(choice.reason + served_less(report, runs));
  if (finished < planned)
    *report.mutable_best_reason() +=
        fmt::format("; stopped early, of the {} of {} that were finished", finished, planned);
}

}  // namespace tpsim::launch
