#include "launch/report/ties.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/error_bands/error_band.h"
#include "launch/report/comparison.h"
#include "launch/report/comparison_table.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

using Run = proto::RunReport;

// By how much one run is worse than the best in one figure, and how much such a difference means.
struct Difference {
  std::string figure;  // as in the report
  double worse = 0;    // relative; below 0: it is better
  double error = 0;
  std::uint32_t pairs = 0;
  std::string like;

  bool told_apart() const { return worse > error; }
  // How clearly, to find the figure that decides.
  double clearness() const { return worse / std::max(error, 1e-9); }
};

// What a difference must exceed. `figure`: whose errors stand for those of the figure compared.
std::optional<PairError> error_between(const ResidualTable& table, Figure figure, const Run& best,
                                       const Run& run) {
  const proto::LoadTraits& a = best.error_bands().traits();
  const proto::LoadTraits& b = run.error_bands().traits();
  if (a.hardware() == b.hardware() && a.model() == b.model()) return pair_error(table, figure, a, b);
  const proto::ErrorBand* const of_best = find_band(best, kFigureNames[static_cast<std::size_t>(figure)]);
  const proto::ErrorBand* const of_run = find_band(run, kFigureNames[static_cast<std::size_t>(figure)]);
  if (of_best == nullptr || of_run == nullptr) return std::nullopt;
  // The bands touch where the best's upper end meets the lower one of the other.
  return PairError{of_best->high() / of_best->predicted() * of_run->predicted() / of_run->low() - 1,
                   std::min(of_best->loads(), of_run->loads()), "error bands of the two"};
}

// All figures that decide, of which a rate is better where higher; empty where one cannot be judged.
std::vector<Difference> differences(const ResidualTable& table, const RateUnit& unit, const Run& best,
                                    const Run& run) {
  struct Compared {
    const char* name;
    Figure errors;
    double of_best, of_run;  // the higher the worse
  };
  std::vector<Compared> figures;
  const auto rate = [&](const char* name, double of_best, double of_run) {
    if (of_best > 0 && std::isfinite(of_best) && std::isfinite(of_run))
      figures.push_back({name, Figure::kDuration, unit.of(best) / of_best, unit.of(run) / of_run});
  };
  if (best.has_max_goodput_rate() && run.has_max_goodput_rate())
    rate("max_goodput_rate", best.max_goodput_rate(), run.max_goodput_rate());
  if (best.has_request_goodput() && run.has_request_goodput())
    rate("request_goodput", best.request_goodput(), run.request_goodput());
  rate("total_throughput", best.total_throughput(), run.total_throughput());
  figures.push_back(
      {"mean_e2e_latency_ms", Figure::kLatency, best.mean_e2e_latency_ms(), run.mean_e2e_latency_ms()});
  std::vector<Difference> out;
  for (const Compared& compared : figures) {
    std::optional<PairError> error = error_between(table, compared.errors, best, run);
    if (!error || !(compared.of_best > 0)) return {};
    out.push_back({compared.name, compared.of_run / compared.of_best - 1, error->error, error->pairs,
                   std::move(error->like)});
  }
  return out;
}

std::string in_words(const std::string& figure) {
  if (figure == "mean_e2e_latency_ms") return "mean latency";
  if (figure == "total_throughput") return "throughput";
  return figure == "request_goodput" ? "goodput" : "rate within the service levels";
}

std::string percent(double share) {
  const double value = 100 * std::abs(share);
  return fmt::format("{:.{}f} %", value, value < 10 ? 1 : 0);
}

std::string known_by(const Difference& difference) {
  if (difference.like == "error bands of the two") return "the error bands of the two overlap up to there";
  return fmt::format("predicted differences of {} measured {} are off by up to {} in {:.0f} of 10 cases",
                     difference.pairs, difference.like, percent(difference.error), 10 * kCoverage);
}

}  // namespace

void find_ties(const ResidualTable& table, proto::ComparisonReport& report) {
  constexpr std::size_t kNamed = 3;
  report.clear_ties();
  report.clear_certainty();
  if (report.best().empty()) return;
  const std::vector<const Run*> runs = comparable_runs(report);
  const auto best =
      std::find_if(runs.begin(), runs.end(), [&report](const Run* run) { return is_best(report, *run); });
  if (best == runs.end() || !(*best)->has_error_bands()) return;
  const RateUnit unit(report);
  std::vector<std::pair<const Run*, Difference>> ties;
  std::optional<std::pair<const Run*, Difference>> rival;  // the least clearly worse of those told apart
  for (const Run* run : runs) {
    if (run == *best || !run->has_error_bands()) continue;
    const std::vector<Difference> all = differences(table, unit, **best, *run);
    if (all.empty()) continue;
    const Difference& decides = *std::max_element(
        all.begin(), all.end(),
        [](const Difference& a, const Difference& b) { return a.clearness() < b.clearness(); });
    if (!decides.told_apart()) {
      ties.emplace_back(run, decides);
    } else if (!rival || decides.clearness() < rival->second.clearness()) {
      rival.emplace(run, decides);
    }
  }
  std::stable_sort(ties.begin(), ties.end(),
                   [](const auto& a, const auto& b) { return a.second.clearness() < b.second.clearness(); });
  for (const auto& [run, difference] : ties) {
    proto::Tie& tie = *report.add_ties();
    tie.set_backend(run->backend());
    *tie.mutable_settings() = run->settings();
    tie.set_figure(difference.figure);
    tie.set_difference(difference.worse);
    tie.set_error(difference.error);
    tie.set_coverage(kCoverage);
    tie.set_like(difference.like);
    tie.set_pairs(difference.pairs);
  }
  std::string& sentence = *report.mutable_certainty();
  if (!ties.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min(ties.size(), kNamed); ++i) {
      const auto& [run, difference] = ties[i];
      names += fmt::format("{}{} ({} {} in {})", i == 0 ? "" : ", ", run_name(report, *run),
                           percent(difference.worse), difference.worse < 0 ? "better" : "worse",
                           in_words(difference.figure));
    }
    if (ties.size() > kNamed) names += fmt::format(" and {} more", ties.size() - kNamed);
    sentence = fmt::format("Tie: {} cannot be told from {}: {}", names, run_name(report, **best),
                           known_by(ties.back().second));
  } else if (rival) {
    sentence =
        fmt::format("Told apart: {} is {} worse in {}; {}", run_name(report, *rival->first),
                    percent(rival->second.worse), in_words(rival->second.figure), known_by(rival->second));
  }
}

}  // namespace tpsim::launch
