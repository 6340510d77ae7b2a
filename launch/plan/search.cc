#include "launch/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "launch/deployment/images.h"
#include "launch/plan/beginning.h"
#include "launch/plan/heads.h"
#include "launch/plan/ranking.h"
#include "launch/simulation/parallel_loop.h"
#include "launch/simulation/served_setting.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"

namespace tpsim::launch {
namespace {

using Workload = scheduler::StreamedWorkload;

constexpr double kSlack = 1.5;
// Settings that go on tell their rate closer, and are hopeless sooner.
constexpr double kCloser = 1.1, kCloserStep = 1.2;
// Requests that settings serve before all of them, where these are more than twice as many.
constexpr std::array<std::uint64_t, 2> kRounds = {300, 1000};

using Bars = std::map<std::uint32_t, Bar>;  // by GPUs

class Search {
 public:
  Search(const ServerArgs& args, PlanSpace& space, const PlanWishes& wishes, const PlanCrew& crew,
         std::uint32_t threads, ProgressBar& progress)
      : args_(args),
        space_(space),
        share_(wishes.share),
        wishes_(wishes),
        crew_(crew),
        threads_(threads),
        progress_(progress) {}

  PlanSearch run() {
    candidates_.resize(space_.settings.size());
    crew_.carry_out({}, [this](const auto&, auto&) { open_load(); });  // all can, or none goes on
    if (args_.goodput.any() && !args_.max_goodput_rate)
      most_bad_ = std::floor((1 - share_) * static_cast<double>(all_->outline().requests) + 1e-6);
    std::vector<std::size_t> left = try_all();
    for (const std::uint64_t requests : kRounds) {
      if (requests != kRounds.front()) {
        if (!some_hold_ && std::isfinite(most_bad_))
          some_hold_ = holds(serve_whole({best_}).at(best_), share_);
        left = try_longer(std::move(left), requests);
      }
      if (wishes_.hold && left.empty()) return std::move(out_);
      const bool last = requests == kRounds.back() || !beginning_;
      left = best_of(left, last);
      if (last) break;
    }
    serve_all(left);
    if (wishes_.hold && std::ranges::none_of(out_.finalists, [this](const PlanSearch::Finalist& finalist) {
          return holds(finalist.report, share_);
        }))
      out_.finalists.clear();
    out_.load = std::move(all_);
    return std::move(out_);
  }

 private:
  // What `work` makes of each of `settings`, on all threads of all processes. `by_group`: a process takes a
  // group's settings together, of which many are the same deployment.
  std::vector<proto::PlanTrial> each(
      const std::vector<std::size_t>& settings, bool by_group, const std::string& label,
      const std::function<proto::PlanTrial(std::size_t setting, const std::atomic<bool>& stop)>& work) {
    progress_.set_label("plan: " + label);
    std::vector<std::uint32_t> numbers(settings.size());
    for (std::size_t k = 0; k < settings.size(); ++k)
      numbers[k] = by_group ? space_.groups[settings[k]] : static_cast<std::uint32_t>(k);
    return crew_.carry_out(numbers, [&](const std::vector<std::size_t>& share, auto& trials) {
      parallel_loop(
          share.size(), threads_,
          [&](std::size_t k, const std::atomic<bool>& stop) {
            trials[share[k]] = work(settings[share[k]], stop);
          },
          [&](std::size_t done) {
            progress_.update({.finished = done, .total = share.size()});
            StopFlag::throw_if_requested();
          });
    });
  }

  // The load, whose images are placed by a model that can be served.
  void open_load() {
    std::string refusal;  // of the first, which has the fewest flags
    for (const Setting& setting : space_.settings) {
      const ResolvedSetting resolved = resolve_setting(setting);
      if (!resolved.deployment) {
        if (refusal.empty()) refusal = resolved.refusal;
        continue;
      }
      const Deployment& deployment = *resolved.deployment;
      all_ = with_images_placed(args_, deployment.model, deployment.host, load_workload(args_));
      return;
    }
    throw_user_error("{} (none of the {} settings can be carried out; this is why the plainest cannot)",
                     refusal, space_.settings.size());
  }

  // The first requests, or all where they are few.
  void begin_with(std::uint64_t requests) {
    beginning_.reset();
    if (all_->outline().requests > 2 * requests) beginning_ = std::make_unique<Beginning>(*all_, requests);
  }
  const Workload& beginning() const { return beginning_ ? *beginning_ : *all_; }
  std::string label() const { return fmt::format("{} requests", beginning().outline().requests); }
  void note_round(std::size_t settings) {
    out_.rounds.push_back({beginning().outline().requests, static_cast<std::uint32_t>(settings)});
  }

  // A setting's run of the beginning; it is refused where it cannot be carried out or serve any of the load,
  // and, where it `claims` its deployment, has no report where another setting has one of the same.
  proto::PlanTrial try_one(std::size_t i, const Bar& bar, bool claims, const std::atomic<bool>& stop) {
    proto::PlanTrial trial;
    ResolvedSetting resolved = resolve_setting(space_.settings[i]);
    check_setting(beginning().outline(), resolved);
    trial.set_refusal(resolved.refusal);
    if (!resolved.deployment) return trial;
    const Deployment& deployment = *resolved.deployment;
    if (claims) {
      trial.set_hash(deployment.configuration_hash());
      const std::lock_guard lock(mutex_);
      if (served_by_.contains(trial.hash()) || !claimed_.insert(trial.hash()).second) return trial;
    }
    serve_beginning(resolved.setting->args, deployment, beginning(), bar, stop, trial);
    return trial;
  }

  // What others of as many GPUs have to come up to, `run` being known.
  void raise(Bar& bar, const proto::RunReport& run, double slack) const {
    if (args_.max_goodput_rate) {
      const proto::GoodputSearch& search = run.max_goodput_search();
      if (search.probes().empty()) return;
      const proto::GoodputProbe& last = *search.probes().rbegin();
      const bool reached = search.outcome() != "unreachable";
      const double rate = search.outcome() == "found" ? run.max_goodput_rate() / slack
                          : reached                   ? last.request_throughput() / slack
                                                      : last.offered_rate();
      if (reached > bar.at_least || (reached == bar.at_least && rate > bar.rate.value_or(0)))
        bar = {.rate = rate, .at_least = reached};
      return;
    }
    const double requests = static_cast<double>(beginning().outline().requests);
    const double seconds = !run.has_request_goodput()  ? run.duration()
                           : run.request_goodput() > 0 ? requests / run.request_goodput()
                                                       : 0;
    if (seconds > 0 && (bar.deadline <= 0 || slack * seconds < bar.deadline)) bar.deadline = slack * seconds;
  }

  // Whether the run of the beginning may be that of a setting that keeps the share of all requests.
  bool may_hold(const proto::RunReport& run) const {
    const double bad = (1 - run.goodput_share()) * static_cast<double>(beginning().outline().requests);
    return !std::isfinite(most_bad_) || bad <= most_bad_ + 0.5;
  }

  Bar bar_of(std::size_t i, const Bars& bars) const {
    const auto bar = bars.find(space_.gpus[i]);
    return bar == bars.end() ? Bar{} : bar->second;
  }

  // Settings serve the beginning for the first time; of equal ones the first has the report, whichever
  // served.
  void try_some(const std::vector<std::size_t>& settings, const Bars& bars) {
    claimed_.clear();
    const auto try_in_time = [&](std::size_t i, const std::atomic<bool>& stop) {
      return try_one(i, bar_of(i, bars), /*claims=*/true, stop);
    };
    std::vector<proto::PlanTrial> trials = each(settings, /*by_group=*/true, label(), try_in_time);
    std::map<std::uint64_t, proto::PlanTrial> served;  // of the deployments that served now
    for (proto::PlanTrial& trial : trials) {
      if (!trial.has_report()) continue;
      served.try_emplace(trial.hash(), trial);
      trial.clear_report();
      trial.clear_prefill_share();
    }
    for (std::size_t k = 0; k < settings.size(); ++k) {
      proto::PlanTrial& trial = candidates_[settings[k]] = std::move(trials[k]);
      if (trial.hash() != 0 && served_by_.try_emplace(trial.hash(), settings[k]).second)
        trial = std::move(served.at(trial.hash()));
    }
  }

  // Every setting serves the beginning of the load. Returns those that are left.
  std::vector<std::size_t> try_all() {
    begin_with(kRounds.front());
    // The first of each layout serve it to its end; the best of them says what others have to come up to.
    std::set<std::string> layouts;
    std::vector<std::size_t> first, others;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      (layouts.insert(space_.layouts[i] + std::to_string(space_.gpus[i])).second ? first : others)
          .push_back(i);
    Bars bars;
    try_some(first, bars);
    for (const std::size_t i : first) raise(bars[space_.gpus[i]], candidates_[i].report(), kSlack);
    std::set<std::uint32_t> begun;
    for (const std::size_t i : first) begun.insert(space_.groups[i]);
    std::vector<std::size_t> leads;
    for (const std::size_t i : others) {
      if (begun.insert(space_.groups[i]).second) leads.push_back(i);
    }
    try_some(leads, bars);
    for (const std::size_t i : leads) raise(bars[space_.gpus[i]], candidates_[i].report(), kSlack);
    const auto may = [this](std::size_t i) {
      const proto::PlanTrial& trial = candidates_[i];
      return trial.has_report() && !trial.report().stopped_early() && may_hold(trial.report());
    };
    if (wishes_.hold && std::ranges::none_of(first, may) && std::ranges::none_of(leads, may))
      for (auto& [gpus, bar] : bars) bar.most_bad = most_bad_;
    const std::set<std::uint32_t> dropped = groups_to_pass_over();
    std::vector<std::size_t> rest;
    for (const std::size_t i : others) {
      if (std::ranges::find(leads, i) == leads.end() && !dropped.contains(space_.groups[i]))
        rest.push_back(i);
    }
    try_some(rest, bars);
    if (wishes_.pairs) add_promising_pairs(0);
    const std::size_t drafting = space_.settings.size();
    for (const PlanHead& head : wishes_.heads) add_promising_with(head);
    try_added(bars);
    if (wishes_.pairs && !wishes_.heads.empty()) {
      add_promising_pairs(drafting);
      try_added(bars);
    }
    return those_left();
  }

  // What was added to the space since the last of its settings was tried.
  void try_added(const Bars& bars) {
    const std::size_t before = candidates_.size();
    candidates_.resize(space_.settings.size());
    std::vector<std::size_t> added(candidates_.size() - before);
    std::iota(added.begin(), added.end(), before);
    try_some(added, bars);
  }

  // Of the settings that served the beginning and `may`, for each number of GPUs, those of the best
  // kAddedLayouts layouts: the best of each, and the best that leaves chunks and policy to SGLang. A setting
  // for which add() says no is as if it were none, up to kTries of a layout.
  void for_promising(const std::function<bool(std::size_t setting)>& may,
                     const std::function<bool(std::size_t setting)>& add) {
    constexpr std::size_t kTries = 4;
    for (const std::uint32_t gpus : std::set<std::uint32_t>(space_.gpus.begin(), space_.gpus.end())) {
      proto::ComparisonReport report;
      std::vector<std::size_t> settings;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        const proto::RunReport& run = candidates_[i].report();
        if (space_.gpus[i] != gpus || run.completed() == 0 || run.stopped_early() || !may(i)) continue;
        *report.add_runs() = run;
        settings.push_back(i);
      }
      std::set<std::string> layouts, plain;
      std::map<std::string, std::size_t> refused;
      for (const int rank : rank_runs(report, share_, settings.size())) {
        const std::size_t i = settings[static_cast<std::size_t>(rank)];
        const std::string layout = space_.layouts[i];
        const bool known = layouts.contains(layout);
        if (!known && layouts.size() == kAddedLayouts) continue;
        // The first of a group leaves chunks and policy to SGLang.
        const bool leads = i == 0 || space_.groups[i - 1] != space_.groups[i];
        if (known && (!leads || plain.contains(layout))) continue;
        if (refused[layout] == kTries) continue;
        if (!add(i)) {
          ++refused[layout];
          continue;
        }
        layouts.insert(layout);
        if (leads) plain.insert(layout);
      }
    }
  }

  // Pairs of what the best replicas are, of the settings from `first` on; see search_plan().
  void add_promising_pairs(std::size_t first) {
    for_promising([&](std::size_t i) { return i >= first && candidates_[i].prefill_share() > 0; },
                  [this](std::size_t i) {
                    const std::uint32_t servers = space_.settings[i].args.parallel.replicas();
                    const double prefill = candidates_[i].prefill_share() * servers;
                    std::set<std::uint32_t> splits;
                    for (const double near : {std::floor(prefill), std::ceil(prefill)})
                      splits.insert(std::clamp(static_cast<std::uint32_t>(near), 1U, servers - 1));
                    for (const std::uint32_t split : splits) add_pairs(space_, i, split);
                    return true;
                  });
  }
  void add_promising_with(const PlanHead& head) {
    for_promising([](std::size_t) { return true; },
                  [&](std::size_t i) { return add_with_head(space_, i, head); });
  }

  // Groups whose first setting served the beginning, and is none of the best.
  std::set<std::uint32_t> groups_to_pass_over() {
    std::set<std::uint32_t> dropped;
    for (const std::uint32_t gpus : std::set<std::uint32_t>(space_.gpus.begin(), space_.gpus.end())) {
      proto::ComparisonReport report;
      std::vector<std::size_t> leads;
      std::set<std::uint32_t> seen;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (space_.gpus[i] != gpus || !seen.insert(space_.groups[i]).second) continue;
        const auto served = served_by_.find(candidates_[i].hash());
        if (served == served_by_.end()) continue;  // refused; others of its group may not be
        dropped.insert(space_.groups[i]);
        const proto::RunReport& run = candidates_[served->second].report();
        if (run.stopped_early()) continue;
        *report.add_runs() = run;
        leads.push_back(i);
      }
      for (const std::size_t i : kept(report, leads, std::max(kGroups, leads.size() / 4)))
        dropped.erase(space_.groups[i]);
    }
    return dropped;
  }

  // Of equal deployments the first one, whichever has served.
  std::vector<std::size_t> those_left() {
    std::vector<std::size_t> left;
    std::size_t served_settings = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      proto::PlanTrial& candidate = candidates_[i];
      if (!candidate.refusal().empty()) {
        ++out_.refused[candidate.refusal()];
        continue;
      }
      if (candidate.hash() == 0) {
        ++out_.passed_over;
        continue;
      }
      const auto served = served_by_.find(candidate.hash());
      if (served == served_by_.end()) {
        ++out_.twins;
        continue;
      }
      if (served->second != i)
        *candidate.mutable_report() = std::move(*candidates_[served->second].mutable_report());
      served_by_.erase(served);
      ++served_settings;
      if (candidate.report().stopped_early() || (wishes_.hold && !may_hold(candidate.report())))
        ++out_.hopeless;
      else
        left.push_back(i);
    }
    note_round(served_settings);
    return left;
  }

  // Returns those that are left. Where rates are looked for, the best so far go first, and say what others
  // have to come up to.
  std::vector<std::size_t> try_longer(std::vector<std::size_t> settings, std::uint64_t requests) {
    begin_with(requests);
    note_round(settings.size());
    std::vector<std::size_t> first = settings, others;
    if (args_.max_goodput_rate) {
      std::ranges::stable_sort(settings, std::greater<>(), [this](std::size_t i) { return rates_[i]; });
      std::map<std::uint32_t, std::size_t> taken;
      first.clear();
      for (const std::size_t i : settings)
        (taken[space_.gpus[i]]++ < kFinalists ? first : others).push_back(i);
    }
    Bars bars;
    for (const std::vector<std::size_t>* some : {&first, &others}) {
      std::vector<proto::PlanTrial> trials =
          each(*some, /*by_group=*/false, label(), [&](std::size_t i, const std::atomic<bool>& stop) {
            Bar bar = bar_of(i, bars);
            bar.resolution = kCloser;
            bar.step = kCloserStep;
            if (!bar.rate && rates_.at(i) > 0 && std::isfinite(rates_.at(i))) bar.rate = rates_.at(i);
            if (some_hold_ ? !firsts_.contains(i) : wishes_.hold) bar.most_bad = most_bad_;
            return try_one(i, bar, /*claims=*/false, stop);
          });
      for (std::size_t k = 0; k < some->size(); ++k) candidates_[(*some)[k]] = std::move(trials[k]);
      if (!args_.max_goodput_rate) break;
      for (const std::size_t i : first) raise(bars[space_.gpus[i]], candidates_[i].report(), kCloserStep);
    }
    out_.hopeless += static_cast<std::uint32_t>(
        std::erase_if(settings, [this](std::size_t i) { return candidates_[i].report().stopped_early(); }));
    return settings;
  }

  // Of the settings whose runs the report has, in its order, the best `count` and the best of each layout.
  std::vector<std::size_t> kept(const proto::ComparisonReport& report,
                                const std::vector<std::size_t>& settings, std::size_t count) {
    std::vector<std::size_t> out;
    std::set<std::string> layouts;
    firsts_.clear();
    std::size_t taken = 0;
    for (const int rank : rank_runs(report, share_, settings.size())) {
      const std::size_t i = settings[static_cast<std::size_t>(rank)];
      const bool first = layouts.insert(space_.layouts[i]).second;
      if (first) firsts_.insert(i);
      if (first || taken < count) out.push_back(i);
      ++taken;
    }
    if (!out.empty()) best_ = out.front();
    return out;
  }

  // Of each number of GPUs the best quarter, or the finalists, and the best of each layout.
  std::vector<std::size_t> best_of(const std::vector<std::size_t>& left, bool last) {
    std::set<std::size_t> chosen;
    for (const std::uint32_t gpus : std::set<std::uint32_t>(space_.gpus.begin(), space_.gpus.end())) {
      proto::ComparisonReport report;
      std::vector<std::size_t> settings;
      for (const std::size_t i : left) {
        if (space_.gpus[i] != gpus) continue;
        proto::RunReport& run = *report.add_runs() = std::move(*candidates_[i].mutable_report());
        rates_[i] = run.max_goodput_search().outcome() == "unlimited" ? INFINITY : run.max_goodput_rate();
        settings.push_back(i);
      }
      const std::size_t count = last ? kFinalists : std::max(4 * kFinalists, settings.size() / 4);
      for (const std::size_t i : kept(report, settings, count)) chosen.insert(i);
    }
    if (chosen.empty())
      throw_user_error(
          "--gpus: none of {} settings served a request of the load; see --context-length and the lengths of "
          "its prompts",
          candidates_.size());
    // What is looked for is the highest rate of a GPU.
    const auto rate_of = [this](std::size_t i) { return rates_.at(i) / space_.gpus[i]; };
    const std::size_t best = *std::ranges::max_element(chosen, {}, rate_of);
    if (last && args_.max_goodput_rate && std::isfinite(rate_of(best)))
      std::erase_if(chosen, [&](std::size_t i) {
        return space_.gpus[i] != space_.gpus[best] && rate_of(i) * kSlack < rate_of(best);
      });
    return {chosen.begin(), chosen.end()};
  }

  // Reports of all of the load, by setting; of these settings at least.
  const std::map<std::size_t, proto::RunReport>& serve_whole(std::vector<std::size_t> settings) {
    beginning_.reset();
    std::erase_if(settings, [this](std::size_t i) { return whole_.contains(i); });
    const auto serve = [&](std::size_t i, const std::atomic<bool>& stop) {
      const ResolvedSetting resolved = resolve_setting(space_.settings[i]);
      const std::function<bool()> go_on = [&stop] { return !stop; };
      proto::PlanTrial trial;
      *trial.mutable_report() = serve_setting(resolved, *all_, go_on);
      return trial;
    };
    std::vector<proto::PlanTrial> trials = each(settings, /*by_group=*/false, label(), serve);
    for (std::size_t k = 0; k < settings.size(); ++k)
      whole_[settings[k]] = std::move(*trials[k].mutable_report());
    return whole_;
  }

  void serve_all(const std::vector<std::size_t>& chosen) {
    serve_whole(chosen);
    note_round(chosen.size());
    for (const std::size_t i : chosen) out_.finalists.push_back({i, std::move(whole_.at(i))});
  }

  const ServerArgs& args_;
  PlanSpace& space_;
  const double share_;
  const PlanWishes& wishes_;
  const PlanCrew& crew_;
  const std::uint32_t threads_;
  ProgressBar& progress_;
  std::unique_ptr<const Workload> all_, beginning_;
  std::vector<proto::PlanTrial> candidates_;  // what came of a setting's last run
  std::map<std::size_t, double> rates_;       // that settings kept in it, requests per second; 0: none
  // Of one load with levels: the bad requests that a setting may have in all of it, and whether one has not
  // more. Without, infinity.
  double most_bad_ = std::numeric_limits<double>::infinity();
  bool some_hold_ = false;
  std::size_t best_ = 0;                           // by the last ranking …
  std::set<std::size_t> firsts_;                   // … and the best of each layout
  std::map<std::size_t, proto::RunReport> whole_;  // of all of the load
  std::mutex mutex_;
  std::set<std::uint64_t> claimed_;                 // hashes of deployments that this process serves now
  std::map<std::uint64_t, std::size_t> served_by_;  // the setting that serves, by the hash of its deployment
  PlanSearch out_;
};

}  // namespace

PlanSearch search_plan(const ServerArgs& args, PlanSpace& space, const PlanWishes& wishes,
                       const PlanCrew& crew, std::uint32_t threads, ProgressBar& progress) {
  return Search(args, space, wishes, crew, threads, progress).run();
}

}  // namespace tpsim::launch
