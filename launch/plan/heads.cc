#include "launch/plan/heads.h"

#include <array>
#include <utility>

#include "launch/plan/ranking.h"
#include "launch/simulation/served_setting.h"
#include "rank/config/architecture.h"
#include "rank/config/catalogue_models.h"
#include "rank/llm/draft_model.h"

namespace tpsim::launch {
namespace {

constexpr std::array<std::uint32_t, 4> kSteps = {0, 3, 2, 1};  // 0: SGLang's own choice

}  // namespace

std::vector<PlanHead> heads_for(const rank::ModelConfig& model) {
  std::vector<PlanHead> heads;
  if (rank::has_next_layer(model) && published_acceptance(model.architecture, rank::DraftKind::kNextN))
    heads.push_back({model.is_compressed() ? "EAGLE" : "NEXTN", "", model.is_compressed()});
  if (!published_acceptance(model.architecture, rank::DraftKind::kEagle3)) return heads;
  for (const std::string& id : rank::catalogue_drafts_for(model.name)) {
    const auto head = rank::catalogue_draft(id);
    if (head && head->facts.draft_head == rank::DraftHead::kEagle3) heads.push_back({"EAGLE3", id, false});
  }
  return heads;
}

bool add_with_head(PlanSpace& space, std::size_t plain, const PlanHead& head) {
  const auto add = [&](std::uint32_t steps) {
    Setting setting = space.settings[plain];
    SpeculationArgs& speculation = setting.args.speculation;
    speculation.algorithm = head.algorithm;
    speculation.draft_model_path = head.path;
    std::vector<std::pair<std::string, std::string>> flags = {{"--speculative-algorithm", head.algorithm}};
    if (!head.path.empty()) flags.emplace_back("--speculative-draft-model-path", head.path);
    if (steps > 0) {
      speculation.num_steps = steps;
      speculation.eagle_topk = 1;
      speculation.num_draft_tokens = steps + 1;
      flags.emplace_back("--speculative-num-steps", std::to_string(steps));
      flags.emplace_back("--speculative-eagle-topk", "1");
      flags.emplace_back("--speculative-num-draft-tokens", std::to_string(steps + 1));
    }
    add_setting(space, plain, std::move(setting), flags,
                space.layouts[plain] + " --speculative-algorithm " + head.algorithm);
  };
  const std::size_t first = space.settings.size();
  for (const std::uint32_t steps : kSteps) {
    if (steps == 0 && head.chains_alone) continue;
    add(steps);
    if (space.settings.size() == first + 1 && !resolve_setting(space.settings.back()).deployment)
      return false;
  }
  return true;
}

bool speculates(const Setting& setting) { return !setting.args.speculation.algorithm.empty(); }

std::optional<PublishedAcceptance> assumed_acceptance(const Setting& setting) {
  if (!speculates(setting)) return std::nullopt;
  const ResolvedSetting resolved = resolve_setting(setting);
  return resolved.deployment ? resolved.deployment->speculation.assumed : std::nullopt;
}

double kept_tokens(const proto::RunReport& run) {
  if (!run.has_speculation()) return 1;
  double mean = 0;
  for (int i = 0; i < run.speculation().accept_length_fraction_size(); ++i)
    mean += (i + 1) * run.speculation().accept_length_fraction(i);
  return mean;
}

std::optional<double> pays_from(const Setting& setting, const proto::RunReport& run, double assumed,
                                const proto::RunReport& plain, const scheduler::StreamedWorkload& workload,
                                double share, const std::function<bool()>& go_on) {
  const auto pays = [&](const proto::RunReport& drafting) {
    proto::ComparisonReport report;
    *report.add_runs() = drafting;
    *report.add_runs() = plain;
    return rank_runs(report, share, 1) == std::vector<int>{0};
  };
  if (!pays(run)) return std::nullopt;
  Setting other = setting;
  double kept = kept_tokens(run), low = 0, high = assumed;
  constexpr int kRuns = 5;
  for (int i = 0; i < kRuns; ++i) {
    const double rate = (low + high) / 2;
    other.args.speculation.accept_rates = {rate};
    const proto::RunReport again = serve_setting(resolve_setting(other), workload, go_on);
    if (!go_on()) return std::nullopt;
    if (pays(again)) {
      high = rate;
      kept = kept_tokens(again);
    } else {
      low = rate;
    }
  }
  return kept;
}

}  // namespace tpsim::launch
