#include "launch/plan/plan_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/cli/flag_command.h"
#include "launch/cli/flag_values.h"
#include "launch/cli/terminal.h"
#include "launch/flags/server_args.h"
#include "launch/plan/answer.h"
#include "launch/plan/crew.h"
#include "launch/plan/gpu_types.h"
#include "launch/plan/heads.h"
#include "launch/plan/manifests.h"
#include "launch/plan/plan_json.h"
#include "launch/plan/ranking.h"
#include "launch/plan/search.h"
#include "launch/plan/space.h"
#include "launch/report/report_dir.h"
#include "launch/simulation/launch_line.h"
#include "launch/simulation/report_output.h"
#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "proto/base/text.h"
#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {
namespace {

constexpr std::uint64_t kMostGpus = 1024;

struct PlanArgs : ServerArgs {
  PlanQuestion question;
  bool no_speculation = false;
  std::vector<std::string> hardware_list;  // one or more
  std::string write_dir;
};

// "8", "4,8" or "4..32", which doubles from 4 on.
std::vector<std::uint32_t> read_gpus(std::string_view flag, const std::string& value) {
  std::vector<std::uint32_t> out;
  const std::size_t dots = value.find("..");
  if (value.find_first_not_of("0123456789,.") != std::string::npos || value.find("...") != std::string::npos)
    throw_user_error("{} {}: must be a number of GPUs, several such as 4,8, or a range such as 4..32", flag,
                     value);
  if (dots == std::string::npos) {
    for (const std::string& one : split_list(value))
      out.push_back(static_cast<std::uint32_t>(parse_count(flag, one, 1, kMostGpus)));
  } else {
    const std::uint64_t from = parse_count(flag, value.substr(0, dots), 1, kMostGpus);
    const std::uint64_t to = parse_count(flag, value.substr(dots + 2), from, kMostGpus);
    for (std::uint64_t gpus = from; gpus <= to; gpus *= 2) out.push_back(static_cast<std::uint32_t>(gpus));
  }
  std::ranges::sort(out);
  if (std::ranges::adjacent_find(out) != out.end())
    throw_user_error("{} {}: names a number twice", flag, value);
  return out;
}

void declare(FlagSet& flags, PlanArgs& args) {
  declare_server_flags(flags, args, /*compare=*/true);
  flags.group("Plan");
  flags.add_value(
      "--gpus", "N",
      "GPUs to share out (required); 4,8 or 4..32, which doubles, for the smallest number that holds "
      "--slo",
      [&args](std::string_view flag, const std::string& value) {
        args.question.gpus = read_gpus(flag, value);
      });
  flags.add_value("--write", "DIR",
                  "writes launch.sh, compose.yaml and kubernetes.yaml for the proposed setting; none of them "
                  "may be there",
                  text(args.write_dir));
  flags.add_switch("--no-speculation",
                   "tries no speculative decoding; else the heads known for the model are tried",
                   args.no_speculation);
  flags.add_switch("--explain", "prints how many settings cannot be carried out, by reason",
                   args.question.explain);
}

// What a plan cannot take of a comparison's flags.
void check(PlanArgs& args, const FlagSet& flags) {
  if (args.question.gpus.empty()) throw_user_error("--gpus: is required, for example --gpus 8");
  if (args.numeric())
    throw_user_error(
        "--executor numeric: computes on this machine, which tells nothing of GPUs; leave it out");
  if (args.parallel.enable_dp_attention)
    throw_user_error("--enable-dp-attention: `tpsim plan` finds that out; to settle it give --attn-dp-size");
  if (!args.router.fleet.empty())
    throw_user_error("--fleet {}: names its servers; `tpsim plan` finds them, leave one out",
                     args.router.fleet);
  if (args.disaggregation.pd_disaggregation)
    throw_user_error(
        "--pd-disaggregation: `tpsim plan` finds that out; =false leaves pairs out of it, and `tpsim compare "
        "--pd-disaggregation --prefill 1,2 --decode 1,2` is of pairs alone");
  for (const FlagSet::List& list : flags.lists()) {
    for (const std::string_view other :
         {"--request-rate", "--max-concurrency", "--time-scale", "--enable-dp-attention"}) {
      if (list.flag == other)
        throw_user_error("{}: takes one value here, a plan is for one load; ask once for each", other);
    }
  }
  args.hardware_list = {args.hardware};
  for (const FlagSet::List& list : flags.lists()) {
    if (list.flag == "--hardware") args.hardware_list = list.values;
  }
  for (const std::string& hardware : args.hardware_list) {
    if (!hardware.empty()) rank::load_hardware(hardware);  // a name that is none is no type without a plan
  }
  const std::size_t costs = args.gpu_hour_costs.size();
  if (costs > 0 && costs != args.hardware_list.size())
    throw_user_error("--gpu-hour-cost: has {} for {} of --hardware ({}); give one for each, in that order",
                     costs, args.hardware_list.size(), fmt::join(args.hardware_list, ","));
  if (!args.output_file.empty())
    throw_user_error("--output-file {}: is of `tpsim run` and `tpsim compare`; use --report-dir",
                     args.output_file);
  if (args.all_attention_backends) args.all_attention_backends = false;  // as where none is named
  args.question.share = args.goodput_share.value_or(args.question.share);
  if (args.goodput_share && !args.goodput.any())
    throw_user_error("--goodput-share {}: is of requests within --slo, for example --slo ttft:2000 tpot:50",
                     format_real(*args.goodput_share));
  if (!args.max_goodput_rate) args.goodput_share.reset();
  ServerArgs one = args;
  one.swept = true;
  check_server_args(one, /*compare=*/true);
}

// What may be added to the space. --pd-disaggregation that is given is false; see check(). Who settled
// --dp-size wants whole servers, and who gave --speculative-algorithm that one.
PlanWishes wishes_of(const PlanArgs& args, const FlagSet& flags) {
  PlanWishes wishes;
  wishes.share = args.question.share;
  wishes.pairs = !flags.given().contains("--pd-disaggregation") && !flags.given().contains("--dp-size");
  if (!args.no_speculation && !flags.given().contains("--speculative-algorithm"))
    wishes.heads = heads_for(rank::load_model_config(args.model_path));
  return wishes;
}

// Of the runs that are shown; of the proposed one also, from which acceptance on it pays.
std::vector<PlanAssumption> assumptions_of(const GpuPlan& plan, double share) {
  std::vector<PlanAssumption> out;
  const auto drafts = [&plan](int run) { return speculates(plan.setting_of(run)); };
  const auto plain = std::ranges::find_if_not(plan.answer.order, drafts);
  for (const int run : plan.answer.shown) {
    const std::optional<PublishedAcceptance> acceptance = assumed_acceptance(plan.setting_of(run));
    if (!acceptance) continue;
    PlanAssumption& one = out.emplace_back(run, *acceptance, kept_tokens(plan.report.runs(run)));
    if (run != plan.answer.order.front() || plain == plan.answer.order.end()) continue;
    one.against = *plain;
    one.pays_from =
        pays_from(plan.setting_of(run), plan.report.runs(run), acceptance->rate, plan.report.runs(*plain),
                  *plan.search.load, share, [] { return !StopFlag::requested(); });
    if (StopFlag::requested()) throw Stopped();
  }
  return out;
}

// Writes the report of the finalists, and answers by it.
void report_plan(const PlanArgs& args, GpuPlan& plan) {
  ServerArgs silent = args;
  silent.quiet = true;
  if (args.hardware_list.size() > 1 && !args.report_dir.empty())
    silent.report_dir =
        (std::filesystem::path(args.report_dir) / std::filesystem::path(args.hardware).stem()).string();
  const StopFlag::Writing writing;
  ReportOutput output(silent, ReportOutput::Kind::kSweep);
  output.begin_sweep(plan.space.axes);
  // Where some hold the service levels, others are no answer.
  const auto is_held = [&](const PlanSearch::Finalist& finalist) {
    return holds(finalist.report, args.question.share);
  };
  const bool some_hold = std::ranges::any_of(plan.search.finalists, is_held);
  for (const PlanSearch::Finalist& finalist : plan.search.finalists) {
    if (some_hold && !is_held(finalist)) continue;
    plan.settings.push_back(finalist.setting);
    output.end_run(finalist.report, launch_commands(plan.space.settings[finalist.setting].args));
  }
  output.plan(plan.settings.size());
  output.write();
  plan.report = output.report();
  plan.answer = answer_plan(args.question, plan.space, plan.settings, plan.report);
  if (plan.answer.order.empty())
    throw_user_error("--gpus: no setting can be compared: {}", plan.report.best_reason());
}

// The plan for so many of args.hardware; of its first process alone an answer, too. `hold`: there is none
// where no setting keeps --slo; it has no finalists then.
GpuPlan plan_fleet(PlanArgs& args, const FlagSet& flags, const std::vector<std::uint32_t>& gpus, bool hold,
                   const PlanCrew& crew) {
  GpuPlan plan;
  plan.hardware = args.hardware;
  plan.space = plan_space(flags, args, gpus);
  PlanWishes wishes = wishes_of(args, flags);
  wishes.hold = hold;
  {
    ProgressBar progress(ProgressBar::mode_for_stderr(!args.quiet && !args.no_progress), "plan", "settings");
    plan.search = search_plan(args, plan.space, wishes, crew, args.jobs.value_or(crew.cores()), progress);
  }
  return plan;
}

// The same for the numbers of --gpus, of which the smallest that holds the levels of one load is enough: one
// after another then. Where none holds, the largest that can serve has the answer.
GpuPlan plan_gpu(PlanArgs& args, const FlagSet& flags, std::optional<double> cost, const PlanCrew& crew) {
  std::vector<std::vector<std::uint32_t>> fleets = {args.question.gpus};
  if (args.goodput.any() && !args.max_goodput_rate) {
    fleets.clear();
    for (const std::uint32_t gpus : args.question.gpus) fleets.push_back({gpus});
  }
  GpuPlan plan;
  std::vector<FleetTooSmall> too_small;
  std::optional<std::size_t> serves;  // too little
  for (std::size_t i = 0; i < fleets.size(); ++i) {
    const bool last = i + 1 == fleets.size();
    try {
      plan = plan_fleet(args, flags, fleets[i], !last, crew);
      if (!plan.search.finalists.empty()) break;
      serves = i;
      too_small.push_back({fleets[i].front(),
                           fmt::format("none of {} settings keeps {} % of the requests within the levels",
                                       plan.space.settings.size(), format_real(100 * args.question.share))});
    } catch (const UserError& error) {
      if (last && !serves) throw;
      too_small.push_back({fleets[i].front(), error.what()});
      if (last) plan = plan_fleet(args, flags, fleets[*serves], /*hold=*/false, crew);
    }
  }
  plan.gpu_hour_cost = cost;
  plan.too_small = std::move(too_small);
  if (!crew.leads()) return plan;
  report_plan(args, plan);
  plan.assumptions = assumptions_of(plan, args.question.share);
  return plan;
}

// What a hardware file says of its cost.
std::optional<double> cost_of_file(const std::string& hardware) {
  const double cost = hardware.empty() ? 0 : rank::load_hardware(hardware).gpu_hour_cost();
  return cost > 0 ? std::optional(cost) : std::nullopt;
}

// Of each type of GPU, best first; those without go to `refusals`. Throws UserError where none has a plan.
std::vector<GpuPlan> plan_all(PlanArgs& args, const FlagSet& flags, const PlanCrew& crew,
                              std::vector<GpuRefusal>& refusals) {
  std::vector<GpuPlan> plans;
  std::string reasons;
  for (std::size_t i = 0; i < args.hardware_list.size(); ++i) {
    flags.set("--hardware", args.hardware_list[i]);
    const std::optional<double> cost =
        args.gpu_hour_costs.empty() ? cost_of_file(args.hardware_list[i]) : args.gpu_hour_costs[i];
    if (args.hardware_list.size() == 1) {
      plans.push_back(plan_gpu(args, flags, cost, crew));
      break;
    }
    try {
      plans.push_back(plan_gpu(args, flags, cost, crew));
    } catch (const UserError& error) {
      refusals.push_back({args.hardware, error.what()});
      if (reasons.find(error.what()) == std::string::npos)
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", args.hardware, error.what());
    }
  }
  if (!crew.leads()) return plans;
  if (plans.empty()) throw_user_error("--hardware: no GPU of the list has a plan: {}", reasons);
  order_gpu_types(args.question, plans);
  return plans;
}

int plan(PlanArgs& args, FlagSet& flags, const PlanCrew& crew) {
  std::optional<ReportDir> written, folder;
  OutputFile* json = nullptr;
  crew.first_does([&] {
    if (!args.write_dir.empty()) refuse_existing_manifests(written.emplace(args.write_dir, "--write"));
    if (!args.report_dir.empty()) json = &folder.emplace(args.report_dir).open("plan.json");
  });
  if (!crew.leads()) args.quiet = true;
  std::vector<GpuRefusal> refusals;
  const std::vector<GpuPlan> plans = plan_all(args, flags, crew, refusals);
  if (!crew.leads()) return kDone;
  const StopFlag::Writing writing;
  const GpuPlan& best = plans.front();
  if (json != nullptr) {
    json->write(plan_json(args.question, args, plans, refusals).dump(2) + "\n");
    folder->commit_all();
  }
  std::string last_lines;
  if (json != nullptr)
    last_lines += fmt::format(
        "\nReport: {}\n",
        (folder->path() / (args.hardware_list.size() > 1 ? "plan.json" : "report.html")).string());
  if (written) {
    const ServerArgs& proposed = best.setting_of(best.answer.order.front()).args;
    last_lines += write_manifests(proposed, *written);
  }
  if (!args.quiet) {
    const bool colour = shows_colours(STDOUT_FILENO);
    const int width = terminal_columns(STDOUT_FILENO);
    print((args.hardware_list.size() > 1 ? gpu_types_text(args.question, args, plans, refusals, colour, width)
                                         : plan_text(args.question, args, best, colour, width)) +
          last_lines);
  }
  return kDone;
}

}  // namespace

void add_plan_command(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<PlanArgs>(
      command, action, [](FlagSet& flags, PlanArgs& args) { declare(flags, args); },
      [&session](PlanArgs& args, FlagSet& flags) {
        set_up_logging(args, session.process() == 0);
        check(args, flags);
        if (args.trace == "-" && session.num_processes() > 1)
          throw_user_error("--trace -: under mpirun one process alone has a standard input; name a file");
        const PlanCrew crew(session);
        try {
          return plan(args, flags, crew);
        } catch (const Stopped&) {  // the others know nothing of it
          if (session.num_processes() > 1) session.mark_lost(kStoppedEarly);
          throw;
        } catch (const rank::RankLost&) {
          session.mark_lost(kStoppedEarly);
          throw;
        }
      });
}

}  // namespace tpsim::launch
