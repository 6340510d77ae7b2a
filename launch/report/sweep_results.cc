#include "launch/report/sweep_results.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/report/comparison.h"
#include "launch/report/run_names.h"

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

}  // namespace

void mark_pareto(proto::ComparisonReport& report) {
  const std::vector<const proto::RunReport*> runs = comparable_runs(report);
  const auto dominated = [&runs](const proto::RunReport& run) {
    return std::any_of(runs.begin(), runs.end(), [&run](const proto::RunReport* other) {
      const double more = other->total_throughput() - run.total_throughput();
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

}  // namespace tpsim::launch
