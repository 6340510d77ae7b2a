#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention/selection/registry.h"
#include "launch/cli/terminal.h"
#include "launch/commands/commands.h"
#include "launch/deployment/images.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/launch_line.h"
#include "launch/simulation/report_output.h"
#include "launch/simulation/served_setting.h"
#include "launch/simulation/simulate.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/sweep.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/cost/hardware.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/farm.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::launch {
namespace {

// A name that nothing has is a slip of the keyboard, not a setting that happens to be impossible.
void refuse_unknown_names(const Sweep& sweep) {
  std::set<std::string> hardware;
  for (const Setting& setting : sweep.settings) {
    for (const BackendPair& pair : setting.args.attention_backends) {
      attention::find_backend(pair.prefill, "--attention-backends");
      attention::find_backend(pair.decode, "--attention-backends");
    }
    hardware.insert(setting.args.hardware);
  }
  hardware.erase("");  // none was given, which is refused for each setting
  for (const std::string& name : hardware) rank::load_hardware(name);
}

// The same in every process. Throws UserError where nothing is left to serve.
class Plan {
 public:
  Plan(const ServerArgs& args, const Sweep& sweep) {
    refuse_unknown_names(sweep);
    for (const Setting& setting : sweep.settings) settings_.push_back(resolve_setting(setting));
    refuse_twins();
    refuse_if_nothing_is_left();
    const auto first = std::find_if(settings_.begin(), settings_.end(), [](const ResolvedSetting& resolved) {
      return resolved.deployment.has_value();
    });
    workload_ =
        with_images_placed(args, first->deployment->model, first->deployment->host, load_workload(args));
    for (ResolvedSetting& resolved : settings_) {
      check_setting(workload_->outline(), resolved);
      if (resolved.deployment) served_.push_back(&resolved);
    }
    refuse_if_nothing_is_left();
  }

  const scheduler::StreamedWorkload& workload() const { return *workload_; }
  const std::vector<ResolvedSetting>& settings() const { return settings_; }
  // Those that can be carried out.
  const std::vector<const ResolvedSetting*>& served() const { return served_; }

 private:
  // Chains of drafts whose --speculative-num-draft-tokens SGLang makes another's: they are served once.
  void refuse_twins() {
    std::map<std::uint64_t, const ResolvedSetting*> served;
    for (const bool adjusted : {false, true}) {
      for (ResolvedSetting& resolved : settings_) {
        if (!resolved.deployment || resolved.deployment->speculation.draft_tokens_adjusted != adjusted)
          continue;
        if (served.try_emplace(resolved.deployment->configuration_hash(), &resolved).second || !adjusted)
          continue;
        resolved.refusal = fmt::format(
            "--speculative-num-draft-tokens {}: with --speculative-eagle-topk 1 a step verifies {}, which "
            "another setting does already",
            resolved.setting->args.speculation.num_draft_tokens.value_or(0),
            resolved.deployment->scheduler.speculation.num_draft_tokens);
        resolved.deployment.reset();
      }
    }
  }

  void refuse_if_nothing_is_left() const {
    std::set<std::string> reasons;
    for (const ResolvedSetting& resolved : settings_) {
      if (resolved.deployment) return;
      reasons.insert(resolved.refusal);
    }
    const std::string& first = settings_.front().refusal;
    if (reasons.size() == 1) throw UserError(first);
    throw_user_error("{} (none of the {} settings can be carried out; this is why the first cannot)", first,
                     settings_.size());
  }

  std::unique_ptr<const scheduler::StreamedWorkload> workload_;
  std::vector<ResolvedSetting> settings_;
  std::vector<const ResolvedSetting*> served_;
};

// Settings as tasks of threads, each for all ranks of its setting; the report as bytes.
rank::TaskFarm::Task task_of(const Plan& plan) {
  return [&plan](std::uint32_t task, const std::atomic<bool>& stop) {
    const std::function<bool()> go_on = [&stop] { return !stop; };
    return serve_setting(*plan.served()[task], plan.workload(), go_on).SerializeAsString();
  };
}

// A group of processes that serves one setting after the other, each process with its ranks. Process 0 of it
// leads: it names the setting to the others.
class SweepGroup {
 public:
  SweepGroup(const Plan& plan, rank::MpiSession& session, const rank::ProcessGroup& group)
      : plan_(plan), session_(session), group_(group), post_(group_) {}
  SweepGroup(const SweepGroup&) = delete;
  SweepGroup& operator=(const SweepGroup&) = delete;
  // Of the leader: the others end with status 2 where end() was not called.
  ~SweepGroup() {
    if (group_.process == 0) end(2);
  }

  // The leader serves a setting with all of them: a task of GroupFarm.
  std::optional<std::string> serve(std::uint32_t task, const std::function<bool()>& go_on) {
    tell({static_cast<std::int32_t>(task), 0});
    std::optional<std::string> bytes;
    try {
      on_group(task, [&](const Stage& stage) {
        const proto::RunReport report = serve_setting(*plan_.served()[task], plan_.workload(), stage, go_on);
        if (!report.stopped_early()) bytes = report.SerializeAsString();
        return 0;
      });
    } catch (const Stopped&) {  // while weights were loaded
    }
    return bytes;
  }
  void end(int exit_status) {
    if (!std::exchange(ended_, true) && !session_.lost()) tell({kEnd, exit_status});
  }

  // The other processes, until end(); its status.
  int follow() {
    rank::IdleBackoff backoff(false);
    while (true) {
      const std::optional<rank::FarmPost::Message> message = post_.receive();
      if (!message) {
        backoff.wait();
        continue;
      }
      backoff.reset();
      const auto told = rank::number_in<Told>(message->bytes);
      if (told.task == kEnd) return told.exit_status;
      on_group(static_cast<std::uint32_t>(told.task), nullptr);
    }
  }

 private:
  static constexpr std::int32_t kEnd = -1;
  static constexpr auto kTag = static_cast<rank::FarmTag>(100);  // not one of worker_link.h
  struct Told {
    std::int32_t task = 0;
    std::int32_t exit_status = 0;
  };

  void tell(Told told) const {
    for (std::uint32_t process = 1; process < group_.num_processes; ++process)
      post_.send(process, kTag, rank::bytes_of(told));
  }
  void on_group(std::uint32_t task, const std::function<int(const Stage&)>& schedule) {
    const ResolvedSetting& resolved = *plan_.served()[task];
    rank::ProcessGroup group = group_;
    group.tp_size = resolved.deployment->ranks.num_ranks();
    run_on_group(resolved.setting->args, {&*resolved.deployment, 1}, session_, group, schedule);
  }

  const Plan& plan_;
  rank::MpiSession& session_;
  const rank::ProcessGroup group_;
  const rank::FarmPost post_;
  bool ended_ = false;
};

// The most processes that every setting's ranks, and all of them, can be divided over: one rank each at best.
std::uint32_t processes_of_group(const Plan& plan, std::uint32_t num_processes) {
  std::uint32_t most = num_processes;
  for (const ResolvedSetting* resolved : plan.served())
    most = std::gcd(most, resolved->deployment->ranks.num_ranks());
  return most;
}

void announce(const ServerArgs& args, const Sweep& sweep, const Plan& plan) {
  std::set<std::string> notes;
  for (const ResolvedSetting* resolved : plan.served())
    for (const auto* said : {&resolved->deployment->notes, &resolved->deployment->warnings})
      notes.insert(said->begin(), said->end());
  for (const std::string& note : notes) spdlog::info("{}", note);
  announce_load(plan.workload().outline());
  if (args.quiet) return;
  const std::size_t refused = plan.settings().size() - plan.served().size();
  fmt::print(stderr, "{}{}\n", describe(sweep),
             refused == 0 ? "" : fmt::format("; {} of them cannot be carried out", refused));
}

using OnReport = std::function<void(std::uint32_t task, const std::string& bytes)>;
using GoOn = std::function<bool()>;

// Process 0. `carry_out` serves every setting of the plan and returns whether it did; `loss` then names a
// lost process.
int schedule(const ServerArgs& args, const Sweep& sweep, const AllBackends* found, const Plan& plan,
             const std::function<bool(const OnReport&, const GoOn&)>& carry_out,
             const std::optional<std::string>& loss) {
  const auto num_served = static_cast<std::uint32_t>(plan.served().size());
  ReportOutput output(args, ReportOutput::Kind::kSweep);
  ResultFile results(args.output_file);
  output.plan(num_served);
  output.begin_sweep(sweep.axes);
  if (found != nullptr) output.note(*found);
  for (const ResolvedSetting& resolved : plan.settings()) {
    if (!resolved.deployment) output.refuse(resolved.setting->values, resolved.refusal);
  }
  announce(args, sweep, plan);

  std::vector<std::optional<proto::RunReport>> reports(num_served);
  std::uint32_t finished = 0;
  bool all = false;
  {
    ProgressBar progress(ProgressBar::mode_for_stderr(!args.quiet && !args.no_progress), "compare",
                         "settings");
    all = carry_out(
        [&](std::uint32_t task, const std::string& bytes) {
          reports[task].emplace().ParseFromString(bytes);
          ++finished;
        },
        [&] {
          progress.update({.finished = finished, .total = num_served});
          return !StopFlag::requested();
        });
  }
  {
    const StopFlag::Writing writing;
    for (std::uint32_t task = 0; task < num_served; ++task) {
      std::optional<proto::RunReport>& report = reports[task];
      if (!report) continue;
      results.add(*report);
      output.end_run(std::move(*report), launch_commands(plan.served()[task]->setting->args));
      report.reset();
    }
    output.write();
    results.write();
  }
  if (loss) throw rank::RankLost(*loss);
  if (all) return kDone;
  spdlog::error("interrupted; the {} of {} settings that were finished are in the report", finished,
                num_served);
  return kStoppedEarly;
}

// Computed settings: each takes the cores of its processes, one at a time.
int sweep_in_groups(const ServerArgs& args, const Sweep& sweep, const AllBackends* all,
                    rank::MpiSession& session) {
  if (args.jobs)
    throw_user_error(
        "--jobs {}: is for --executor modeled; computed settings are served one at a time by each group of "
        "processes",
        *args.jobs);
  if (session.process() > 0) StopFlag::leave_to_process_0();
  const Plan plan(args, sweep);
  const std::uint32_t processes = processes_of_group(plan, session.num_processes());
  const rank::ProcessGroup group = session.process_group(processes, session.num_processes() / processes);
  const rank::ProcessGroup leaders = session.leaders(group);
  SweepGroup settings(plan, session, group);
  if (group.process > 0) return settings.follow();
  rank::GroupFarm farm(session, leaders);
  const auto task = [&settings](std::uint32_t number, const GoOn& go_on) {
    return settings.serve(number, go_on);
  };
  int status = kStoppedEarly;
  if (leaders.process > 0) {
    status = farm.serve(task);
  } else {
    const auto num_served = static_cast<std::uint32_t>(plan.served().size());
    const auto carry_out = [&](const OnReport& on_report, const GoOn& go_on) {
      return farm.run({num_served, task, on_report, go_on});
    };
    status = schedule(args, sweep, all, plan, carry_out, farm.loss());
    farm.shutdown(status);
  }
  settings.end(status);
  return status;
}

}  // namespace

int compare_sweep(const ServerArgs& args, const Sweep& sweep, const AllBackends* all,
                  rank::MpiSession& session) {
  set_up_logging(args, session.process() == 0);
  if (args.numeric()) return sweep_in_groups(args, sweep, all, session);
  rank::TaskFarm farm(session);
  const bool schedules = farm.group().process == 0;
  if (!schedules) StopFlag::leave_to_process_0();
  const std::uint32_t threads = args.jobs.value_or(rank::cores_of_process(farm.group()));
  if (!schedules) {
    std::optional<Plan> plan;
    return farm.serve(threads, [&] { return task_of(plan.emplace(args, sweep)); });
  }
  int status = kStoppedEarly;
  try {
    const Plan plan(args, sweep);
    const auto num_served = static_cast<std::uint32_t>(plan.served().size());
    const auto carry_out = [&](const OnReport& on_report, const GoOn& go_on) {
      return farm.run({num_served, std::min(threads, num_served), task_of(plan), on_report, go_on});
    };
    status = schedule(args, sweep, all, plan, carry_out, farm.loss());
  } catch (const Stopped&) {  // before anything was served
    farm.shutdown(status);
    throw;
  }
  farm.shutdown(status);
  return status;
}

}  // namespace tpsim::launch
