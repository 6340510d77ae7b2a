#include "launch/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
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

std::vector<std::string> row_of(const proto::ComparisonReport& report, const proto::RunReport& run,
                                bool best) {
  std::vector<std::string> row = {
      (best ? "* " : "  ") + run.backend() + (run.stopped_early() ? " (stopped early)" : ""),
      format_figure(run.request_throughput())};
  append(row, goodput_cells(report, run));
  append(row, {format_figure(run.input_throughput()), format_figure(run.output_throughput()),
               format_figure(run.mean_ttft_ms()), format_figure(run.p99_ttft_ms()),
               format_figure(run.mean_tpot_ms()), format_figure(run.p99_tpot_ms()),
               format_figure(run.p99_itl_ms()), format_figure(run.mean_e2e_latency_ms() / 1e3),
               fmt::format("{:.1f}", run.cache_hit_rate() * 100),
               fmt::format("{:.1f}", run.peak_kv_usage() * 100), std::to_string(run.retractions())});
  return row;
}

std::string early_turns(const proto::RunReport& run) {
  return fmt::format("{} of {}", run.early_turns(), run.turns());
}

// A line about the runs that replied to answers which were not there; empty where there are none.
std::string early_turns_line(const proto::ComparisonReport& report) {
  std::string line;
  for (const proto::RunReport& run : report.runs()) {
    if (run.early_turns() > 0)
      line += fmt::format("{} {} {}", line.empty() ? "" : ",", run.backend(), early_turns(run));
  }
  return line.empty() ? line : fmt::format("\nTurns sent before the answer they reply to:{}\n", line);
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

std::string rate_text(double rate) {
  return std::isinf(rate) ? "without limit" : format_figure(rate) + " requests/s";
}

// Leaves the runs within 1 % of the highest and adds that to `prefix`, or returns the only one. Nothing
// changes where a run has no such figure.
std::optional<Choice> narrow(const proto::ComparisonReport& report, const Goal& goal,
                             std::vector<const proto::RunReport*>& runs, std::string& prefix) {
  const proto::RunReport* best = nullptr;
  double highest = 0;
  for (const proto::RunReport* run : runs) {
    const std::optional<double> value = goal.value(*run);
    if (!value) return std::nullopt;
    if (best != nullptr && *value <= highest) continue;
    best = run;
    highest = *value;
  }
  std::vector<const proto::RunReport*> left;
  const proto::RunReport* second = nullptr;
  for (const proto::RunReport* run : runs) {
    if (*goal.value(*run) >= highest * (1 - kTie)) left.push_back(run);
    if (run != best && (second == nullptr || *goal.value(*run) > *goal.value(*second))) second = run;
  }
  if (left.size() == 1 && second != nullptr) {
    return Choice{best,
                  fmt::format("{}highest {}: {}, against {} of {}", prefix, goal.name, rate_text(highest),
                              rate_text(*goal.value(*second)), run_name(report, *second))};
  }
  runs = std::move(left);
  if (second != nullptr)
    prefix += fmt::format("{} {}, within 1 % of the highest; of those ", goal.name, rate_text(highest));
  return std::nullopt;
}

}  // namespace

std::string flag_of(const proto::SweepAxis& axis) {
  std::string flag = "--" + axis.flag();
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
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
  for (const Goal& goal : kGoals) {
    const std::optional<Choice> choice = narrow(report, goal, runs, prefix);
    if (choice) return *choice;
  }
  double highest = 0;
  for (const proto::RunReport* run : runs) highest = std::max(highest, run->total_throughput());
  const auto lower_latency = [highest](const proto::RunReport* run, const proto::RunReport* than) {
    if (run->total_throughput() < highest * (1 - kTie)) return false;
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
    if (second == nullptr || run->total_throughput() > second->total_throughput()) second = run;
  }
  const proto::RunReport& best = *choice.best;
  if (rival != nullptr) {
    const double more = rival->mean_e2e_latency_ms() / best.mean_e2e_latency_ms() - 1;
    constexpr double kAsGood = 0.002;  // prices are not that exact
    choice.reason = fmt::format(
        "{} tokens/s, within 1 % of the highest throughput, and the lowest mean latency of those: {:.2f} s",
        format_figure(best.total_throughput()), best.mean_e2e_latency_ms() / 1e3);
    choice.reason +=
        more < kAsGood
            ? fmt::format(", but {} is as good ({:.1f} % more)", run_name(report, *rival), more * 100)
            : fmt::format(" against {:.2f} s of {}", rival->mean_e2e_latency_ms() / 1e3,
                          run_name(report, *rival));
  } else if (second != nullptr) {
    choice.reason = fmt::format(
        "highest throughput: {} tokens/s, {:.1f} % above {}", format_figure(best.total_throughput()),
        (best.total_throughput() / second->total_throughput() - 1) * 100, run_name(report, *second));
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

// Of --attention-backends all; empty where everything that was named ran.
std::string refused_backends(const proto::ComparisonReport& report) {
  std::string out;
  if (!report.refused().empty()) out += "\nNot possible:\n";
  for (const proto::RefusedSetting& refused : report.refused()) {
    const auto name = refused.settings().find(std::string(kBackendAxis));
    out +=
        fmt::format("  {:<22} {}\n", name == refused.settings().end() ? "" : name->second, refused.reason());
  }
  for (const std::string& left_out : report.left_out()) out += fmt::format("\nLeft out: {}\n", left_out);
  return out;
}

constexpr std::string_view kWallClock =
    "wall clock of the emulated cluster: ranks compute on this machine, not on GPUs";

std::string comparison_table(const proto::ComparisonReport& report, bool colour) {
  std::vector<std::string> head = {"  backend", "req/s"};
  append(head, goodput_heads(report));
  append(head, {"input tok/s", "output tok/s", "TTFT ms", "p99", "TPOT ms", "p99", "ITL p99", "latency s",
                "hit %", "KV peak %", "retracted"});
  std::vector<std::vector<std::string>> rows = {std::move(head)};
  for (const proto::RunReport& run : report.runs()) rows.push_back(row_of(report, run, is_best(report, run)));
  std::string out = to_text({rows}, colour);
  out += early_turns_line(report);
  out += goodput_lines(report);
  out += error_band_lines(report) + extrapolation_lines(report);
  if (!report.runs().empty() && report.runs(0).clock() == "wall")
    out += "\n" + std::string(kWallClock) + "\n";
  out += refused_backends(report);
  out += report.best().empty() ? "\nNo best backend: " : "\nBest: " + report.best() + " (";
  out += report.best_reason() + (report.best().empty() ? "\n" : ")\n");
  out += certainty_line(report);
  return out;
}

std::string run_summary(const proto::RunReport& r) {
  std::string out;
  const auto line = [&out](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<34}{}\n", name, value);
  };
  line("Backend (prefill+decode):", r.backend());
  if (r.clock() == "wall") line("Clock:", std::string(kWallClock));
  line("Successful requests:", std::to_string(r.completed()));
  if (r.failed() > 0) line("Refused requests:", std::to_string(r.failed()));
  if (r.has_cancelled()) line("Cancelled requests:", std::to_string(r.cancelled()));
  if (r.session_mode() == "timestamps")
    line("Early turns:", early_turns(r) + " sent before the answer they reply to");
  line("Benchmark duration (s):", format_figure(r.duration()));
  line("Total input tokens:", std::to_string(r.total_input_tokens()));
  line("Total generated tokens:", std::to_string(r.total_output_tokens()));
  line("Request throughput (req/s):", format_figure(r.request_throughput()));
  if (r.has_request_goodput())
    line("Request goodput (req/s):",
         fmt::format("{} ({:.2f} % of requests within {})", format_figure(r.request_goodput()),
                     r.goodput_share() * 100, r.server_args().at("goodput")));
  if (r.has_max_goodput_search()) line("Max goodput rate:", r.max_goodput_search().message());
  if (r.has_overload()) line("Overload:", r.overload().message());
  line("Input token throughput (tok/s):", format_figure(r.input_throughput()));
  line("Output token throughput (tok/s):", format_figure(r.output_throughput()));
  line("Total token throughput (tok/s):", format_figure(r.total_throughput()));
  line("Concurrency:", format_figure(r.concurrency()));
  const auto three = [&line](const char* name, double mean, double median, double p99) {
    line(name, fmt::format("mean {}, median {}, p99 {}", format_figure(mean), format_figure(median),
                           format_figure(p99)));
  };
  three("Time to first token (ms):", r.mean_ttft_ms(), r.median_ttft_ms(), r.p99_ttft_ms());
  three("Time per output token (ms):", r.mean_tpot_ms(), r.median_tpot_ms(), r.p99_tpot_ms());
  three("Inter-token latency (ms):", r.mean_itl_ms(), r.median_itl_ms(), r.p99_itl_ms());
  three("End-to-end latency (ms):", r.mean_e2e_latency_ms(), r.median_e2e_latency_ms(),
        r.p99_e2e_latency_ms());
  if (r.has_percentile_error())
    line("  accuracy of percentiles", fmt::format("within {:.2g} %", r.percentile_error() * 100));
  if (r.has_error_bands()) {
    line("Likely if measured (8 of 10):", error_band_text(r));
    line("  as far off as", error_band_basis(r));
  }
  for (const proto::Extrapolation& beyond : r.extrapolations())
    line("Beyond what was measured:", beyond.message());
  line("Cache hit rate:", fmt::format("{:.1f} %", r.cache_hit_rate() * 100));
  if (r.has_images())
    line("Images:",
         fmt::format("{} ({} tokens), {} encoded, {} embeddings reused, encoder {:.1f} % of GPU time",
                     r.images().images(), r.images().image_tokens(), r.images().encoded(),
                     r.images().cache_hits(), r.images().encoder_share() * 100));
  line("Peak KV usage:", fmt::format("{:.1f} % of {} tokens", r.peak_kv_usage() * 100, r.kv_pool_tokens()));
  if (r.swa_pool_tokens() > 0)
    line("Peak usage of the window pool:",
         fmt::format("{:.1f} % of {} tokens", r.peak_swa_usage() * 100, r.swa_pool_tokens()));
  if (r.state_pool_slots() > 0)
    line("States held, most at once:",
         fmt::format("{} of {}, {:.1f} % by running requests; {} cached ones used", r.peak_states(),
                     r.state_pool_slots(), r.peak_state_usage() * 100, r.state_hits()));
  line("Retractions:", std::to_string(r.retractions()));
  line("Steps (prefill, decode, mixed):",
       fmt::format("{} ({}, {}, {})", r.steps(), r.prefill_steps(), r.decode_steps(), r.mixed_steps()));
  if (r.has_pp_size()) {
    std::vector<std::string> busy;
    for (const proto::PipelineStage& stage : r.pipeline_stages())
      busy.push_back(fmt::format("{:.1f}", (1 - stage.idle_fraction()) * 100));
    line("Pipeline stages busy (%):",
         fmt::format("{} (bubbles {:.1f} %)", fmt::join(busy, ", "), r.pipeline_bubble_fraction() * 100));
  }
  if (r.has_accept_length()) {
    const proto::Speculation& s = r.speculation();
    line("Tokens of a speculative step:",
         fmt::format("{:.2f} ({} of {} drafts)", r.accept_length(), s.algorithm(), s.num_draft_tokens()));
    if (s.verify_share() > 0)
      line("Draft, verify, extend:", fmt::format("{:.0f} %, {:.0f} %, {:.0f} %", 100 * s.draft_share(),
                                                 100 * s.verify_share(), 100 * s.draft_extend_share()));
    if (s.has_tpot_speedup())
      line("Median TPOT without, over with:", fmt::format("{:.2f}", s.tpot_speedup()));
  }
  if (r.cuda_graphs() > 0)
    line("Decode steps in CUDA graphs:",
         fmt::format("{:.1f} % ({} sizes captured in {:.1f} s, {:.2f} GB)", r.replayed_fraction() * 100,
                     r.cuda_graphs(), r.cuda_graph_capture_seconds(),
                     static_cast<double>(r.cuda_graph_bytes()) / 1e9));
  return out;
}

}  // namespace tpsim::launch
