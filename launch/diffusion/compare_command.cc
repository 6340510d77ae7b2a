// Every setting of the lists, the best of each size first.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/terminal.h"
#include "launch/diffusion/diffusion_commands.h"
#include "launch/diffusion/likely.h"
#include "launch/diffusion/pipeline_report.h"
#include "launch/diffusion/resolve.h"
#include "launch/error_bands/error_band.h"
#include "launch/error_bands/residuals.h"
#include "launch/flags/server_args.h"
#include "launch/report/text_table.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// Settings whose seconds lie closer are not told apart.
constexpr double kTie = 0.01;
constexpr std::size_t kMostSettings = 10'000;

constexpr const char *kBackends = "--attention-backends", *kAll = "all";

// Flags whose lists make another load, not another way to serve it.
constexpr std::array<std::string_view, 8> kOfTheLoad = {"--resolutions",
                                                        "--width",
                                                        "--height",
                                                        "--num-frames",
                                                        "--num-inference-steps",
                                                        "--num-outputs-per-prompt",
                                                        "--guidance-scale",
                                                        "--model-path"};
constexpr std::array<std::string_view, 27> kLists = {"--model-path",
                                                     "--hardware",
                                                     "--num-gpus",
                                                     "--tp-size",
                                                     "--sp-degree",
                                                     "--ulysses-degree",
                                                     "--ring-degree",
                                                     "--kv-gather-degree",
                                                     "--enable-cfg-parallel",
                                                     "--cfg-parallel-size",
                                                     "--dp-size",
                                                     kBackends,
                                                     "--performance-mode",
                                                     "--dit-cpu-offload",
                                                     "--dit-layerwise-offload",
                                                     "--text-encoder-cpu-offload",
                                                     "--vae-cpu-offload",
                                                     "--enable-torch-compile",
                                                     "--vae-tiling",
                                                     "--vae-sp",
                                                     "--width",
                                                     "--height",
                                                     "--num-frames",
                                                     "--num-inference-steps",
                                                     "--num-outputs-per-prompt",
                                                     "--computed-share",
                                                     "--resolutions"};

struct Setting {
  PipelineArgs args;
  std::string label, workload;
  Json values;
};

std::string value_name(std::string_view flag, const std::string& value) {
  return flag == kBackends || flag == "--hardware" || flag == "--resolutions" || flag == "--model-path"
             ? value
             : fmt::format("{} {}", flag, value);
}

// The lists that were given; --attention-backends all is one, too.
std::vector<FlagSet::List> lists_of(const FlagSet& flags) {
  std::vector<FlagSet::List> lists = flags.lists();
  const auto given = flags.given().find(kBackends);
  if (given == flags.given().end() || given->second != kAll) return lists;
  lists.push_back({std::string(kBackends), {}});
  for (const attention::DiffusionBackend* const backend : attention::diffusion_backends())
    lists.back().values.emplace_back(backend->name);
  return lists;
}

std::vector<Setting> settings_of(const PipelineArgs& args, const FlagSet& flags,
                                 const std::vector<FlagSet::List>& lists) {
  std::size_t number = 1;
  for (const FlagSet::List& list : lists) {
    number *= list.values.size();
    if (number > kMostSettings)
      throw_user_error("{}: makes more than {} settings, shorten the lists", list.flag, kMostSettings);
  }
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < number; ++i) {
    std::size_t rest = i, block = number;
    std::vector<std::string> label, workload;
    Json values = Json::object();
    for (const FlagSet::List& list : lists) {
      block /= list.values.size();
      const std::string& value = list.values[rest / block];
      rest %= block;
      flags.set(list.flag, value);
      (std::ranges::find(kOfTheLoad, list.flag) == kOfTheLoad.end() ? label : workload)
          .push_back(value_name(list.flag, value));
      values[list.flag] = value;
    }
    settings.push_back({args, fmt::format("{}", fmt::join(label, ", ")),
                        fmt::format("{}", fmt::join(workload, ", ")), std::move(values)});
    if (settings.back().label.empty()) settings.back().label = "as given";
  }
  std::vector<std::string> workloads;
  for (const Setting& setting : settings) {
    if (std::ranges::find(workloads, setting.workload) == workloads.end())
      workloads.push_back(setting.workload);
  }
  std::ranges::stable_sort(settings, {}, [&workloads](const Setting& setting) {
    return std::ranges::find(workloads, setting.workload) - workloads.begin();
  });
  return settings;
}

Json run_json(const Setting& setting, const Pipeline& pipeline, const ResolvedPipeline& resolved,
              const Generation& generation) {
  Json json = generation_json(setting.args, pipeline, resolved, generation);
  Json run = {{"label", setting.label},
              {"workload", setting.workload},
              {"settings", setting.values},
              {"num_gpus", resolved.parallel.num_gpus},
              {"parallelism", parallelism_text(resolved.parallel)}};
  for (const char* const key : {"request", "seconds", "step_seconds", "likely", "gpu_seconds_per_output",
                                "peak_bytes", "memory_bytes", "attention", "stages", "notes", "uncalibrated"})
    run[key] = json[key];
  return run;
}

// Of each size: speed-ups over its first setting, the best, and those that predictions cannot tell from it:
// as fast within what they were off by for measured pairs like the two, or kTie. `traits`: of each run.
void rank_runs(const std::vector<proto::LoadTraits>& traits, Json& report) {
  report["best"] = Json::array();
  std::vector<std::string> workloads;
  for (const Json& run : report["runs"]) {
    if (const std::string w = run["workload"]; std::ranges::find(workloads, w) == workloads.end())
      workloads.push_back(w);
  }
  for (const std::string& workload : workloads) {
    std::optional<std::size_t> best;
    double first = 0, fastest = 0;
    for (std::size_t i = 0; i < traits.size(); ++i) {
      Json& run = report["runs"][i];
      if (run["workload"] != workload) continue;
      const double seconds = run["seconds"];
      if (!best) first = seconds;
      if (!best || seconds < fastest) {
        best = i;
        fastest = seconds;
      }
      run["speedup"] = seconds > 0 ? first / seconds : 1;
    }
    Json ties = Json::array();
    double widest = kTie;
    for (std::size_t i = 0; i < traits.size(); ++i) {
      Json& run = report["runs"][i];
      if (run["workload"] != workload) continue;
      double tie = kTie;
      if (const auto error = pair_error(generation_residuals(), Figure::kTpot, traits[*best], traits[i]))
        tie = std::max(tie, error->error);
      run["best"] = i == *best;
      run["tie"] = i != *best && run["seconds"].get<double>() <= fastest * (1 + tie);
      if (!run["tie"].get<bool>()) continue;
      ties.push_back(run["label"]);
      widest = std::max(widest, tie);
    }
    report["best"].push_back({{"workload", workload},
                              {"label", report["runs"][*best]["label"]},
                              {"seconds", fastest},
                              {"likely", report["runs"][*best]["likely"]},
                              {"ties", std::move(ties)},
                              {"tie_error", widest}});
  }
}

// What the transformers run instead of the backend that was asked for; empty where it is that one.
std::string replaced_text(const Setting& setting, const ResolvedPipeline& resolved) {
  if (setting.args.attention.backend.empty()) return "";
  const std::string_view asked =
      attention::find_diffusion_backend(kBackends, setting.args.attention.backend).name;
  for (const AttentionRow& row : resolved.attention) {
    if (row.component.starts_with("transformer") && row.role == "self" && row.backend != asked)
      return fmt::format("{} runs {}: {}", row.component, row.backend, row.reason);
  }
  return "";
}

// Each sentence once, with the settings that it is about.
std::string refusals_text(const Json& refusals) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Json& refused : refusals) {
    const std::string reason = refused["reason"], label = refused["label"];
    auto at = std::ranges::find(reasons, reason, &std::pair<std::string, std::vector<std::string>>::first);
    if (at == reasons.end()) at = reasons.insert(at, {reason, {}});
    if (std::ranges::find(at->second, label) == at->second.end()) at->second.push_back(label);
  }
  std::string out;
  for (const auto& [reason, labels] : reasons) {
    const std::size_t named = std::min(labels.size(), kNamed);
    out +=
        fmt::format("  {}{}\n    {}\n",
                    fmt::join(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(named), "; "),
                    labels.size() > named ? fmt::format("; and {} more", labels.size() - named) : "", reason);
  }
  return out;
}

std::string comparison_text(const Json& report, bool colour) {
  std::string out =
      fmt::format("{} on {}\n\n", report["model"].get<std::string>(), report["hardware"].get<std::string>());
  TextTable table{.rows = {{"Setting", "Size", "Shared by", "GPUs", "Seconds", "Step", "Speed-up",
                            "GPU seconds", "Peak GiB"}},
                  .left_columns = 3};
  const bool sizes =
      std::ranges::any_of(report["runs"], [](const Json& run) { return run["workload"] != ""; });
  for (const Json& run : report["runs"]) {
    table.rows.push_back({(run["best"].get<bool>()  ? "* "
                           : run["tie"].get<bool>() ? "= "
                                                    : "  ") +
                              run["label"].get<std::string>(),
                          run["workload"], run["parallelism"], fmt::format("{}", run["num_gpus"].get<int>()),
                          format_figure(run["seconds"]), format_figure(run["step_seconds"]),
                          fmt::format("{:.2f} x", run["speedup"].get<double>()),
                          format_figure(run["gpu_seconds_per_output"]),
                          fmt::format("{:.1f}", run["peak_bytes"].get<double>() / (1 << 30))});
  }
  if (!sizes) {
    for (auto& row : table.rows) row.erase(row.begin() + 1);
    table.left_columns = 2;
  }
  if (table.rows.size() > 1) out += to_text(table, colour) + "\n";
  for (const Json& best : report["best"]) {
    out += fmt::format("Best{}: {}, {} s for an output",
                       best["workload"] == "" ? "" : " at " + best["workload"].get<std::string>(),
                       best["label"].get<std::string>(), format_figure(best["seconds"]));
    if (const std::string likely = likely_text(best["likely"], "seconds"); !likely.empty())
      out += fmt::format(" ({})", likely);
    if (!best["ties"].empty())
      out += fmt::format("; predictions cannot tell it from {} (within {:.0f} %)",
                         fmt::join(best["ties"].get<std::vector<std::string>>(), "; "),
                         100 * best["tie_error"].get<double>());
    out += "\n";
  }
  if (!report["replaced"].empty()) out += "\nReplaced\n" + refusals_text(report["replaced"]);
  if (!report["refused"].empty()) out += "\nRefused\n" + refusals_text(report["refused"]);
  for (const Json& what : report["uncalibrated"])
    out += fmt::format("Uncalibrated: {}\n", what.get<std::string>());
  return out;
}

int compare(PipelineArgs& args, const FlagSet& flags, bool speaks) {
  set_up_logging(args, args.ignored, speaks);
  check_pipeline_args(args);
  if (flags.given().contains("--resolutions") && (args.sampling.width || args.sampling.height) &&
      (flags.given().contains("--width") || flags.given().contains("--height")))
    throw_user_error("--resolutions: excludes --width and --height, use one of them");
  if (flags.given().contains(kBackends) && flags.given().contains("--attention-backend"))
    throw_user_error("--attention-backend: excludes --attention-backends, use one of them");
  Json report = {
      {"version", 1}, {"kind", "comparison"}, {"model", args.model_path}, {"hardware", args.hardware}};
  report["axes"] = Json::array();
  const std::vector<FlagSet::List> lists = lists_of(flags);
  for (const FlagSet::List& list : lists) {
    report["axes"].push_back({{"flag", list.flag}, {"values", list.values}});
    if (list.flag == kBackends) args.attention.sharing = list.values;
    if (list.flag == "--model-path") report["model"] = fmt::format("{}", fmt::join(list.values, ", "));
    if (list.flag == "--hardware") report["hardware"] = fmt::format("{}", fmt::join(list.values, ", "));
  }
  report["runs"] = report["replaced"] = report["refused"] = Json::array();
  std::vector<std::string> uncalibrated;
  std::vector<proto::LoadTraits> traits;  // of the runs
  for (Setting& setting : settings_of(args, flags, lists)) {
    try {
      const Pipeline pipeline = load_pipeline_of(setting.args);
      const ResolvedPipeline resolved = resolve(setting.args, pipeline);
      const Generation generation = price(pipeline, resolved, resolved.request);
      if (!generation.fits) throw UserError(generation.too_large);
      report["runs"].push_back(run_json(setting, pipeline, resolved, generation));
      if (const std::string replaced = replaced_text(setting, resolved); !replaced.empty())
        report["replaced"].push_back({{"label", setting.label}, {"reason", replaced}});
      traits.push_back(
          generation_traits(pipeline.config, resolved.plan, resolved.request, pipeline.hardware.name()));
      for (const std::string& what : generation.cost.uncalibrated) {
        if (std::ranges::find(uncalibrated, what) == uncalibrated.end()) uncalibrated.push_back(what);
      }
    } catch (const UserError& error) {
      report["refused"].push_back({{"label", setting.label},
                                   {"workload", setting.workload},
                                   {"settings", setting.values},
                                   {"reason", error.what()}});
    }
  }
  report["uncalibrated"] = uncalibrated;
  if (report["runs"].empty())
    throw_user_error("no setting can run: {}: {}", report["refused"][0]["label"].get<std::string>(),
                     report["refused"][0]["reason"].get<std::string>());
  rank_runs(traits, report);
  if (!speaks) return kDone;
  const std::optional<std::string> page = write_pipeline_report(args, report);
  if (args.quiet) return kDone;
  print(comparison_text(report, shows_colours(STDOUT_FILENO)));
  if (page) print(fmt::format("\nReport: {}\n", *page));
  return kDone;
}

}  // namespace

void add_pipeline_compare(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<PipelineArgs>(
      command, action,
      [](FlagSet& flags, PipelineArgs& args) {
        declare_pipeline(flags, args);
        declare_sampling(flags, args);
        flags.group("Comparison");
        flags.add_value(kBackends, "LIST", "to compare, or all; of one name as --attention-backend",
                        [&args](std::string_view flag, const std::string& value) {
                          args.attention.backend = value == "auto" ? "" : value;
                          if (value != "auto" && value != kAll)
                            attention::find_diffusion_backend(flag, value);
                        });
        flags.add_value("--resolutions", "LIST",
                        "sizes to compare: 480p, 720p, 1080p, one side of a square, WIDTHxHEIGHT",
                        [&args](std::string_view flag, const std::string& value) {
                          const auto [width, height] = read_resolution(flag, value);
                          args.sampling.width = width, args.sampling.height = height;
                        });
        declare_report(flags, args);
        flags.mark_lists(kLists, /*taken=*/true);
      },
      [&session](PipelineArgs& args, FlagSet& flags) {
        return compare(args, flags, session.process() == 0);
      });
}

}  // namespace tpsim::launch
