#include "launch/plan/ranking.h"

#include <algorithm>

#include "launch/report/comparison.h"

namespace tpsim::launch {

bool holds(const proto::RunReport& run, double share) {
  if (run.has_max_goodput_search()) return run.max_goodput_search().outcome() != "unreachable";
  return !run.has_goodput_share() || run.goodput_share() >= share;
}

std::vector<int> rank_runs(const proto::ComparisonReport& report, double share, std::size_t count) {
  std::vector<const proto::RunReport*> holding, others;
  for (const proto::RunReport* run : comparable_runs(report))
    (holds(*run, share) ? holding : others).push_back(run);
  std::vector<int> out;
  for (std::vector<const proto::RunReport*>* const runs : {&holding, &others}) {
    while (!runs->empty() && out.size() < count) {
      const proto::RunReport* const best = choose_among(report, *runs).best;
      for (int i = 0; i < report.runs_size(); ++i) {
        if (&report.runs(i) == best) out.push_back(i);
      }
      std::erase(*runs, best);
    }
  }
  return out;
}

}  // namespace tpsim::launch
