#include "launch/report/comparison_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/report/comparison.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

// What a rate that was searched for is not beside.
constexpr std::string_view kOfTheLoad = "all other figures are of the load as given, not at that rate";
constexpr int kSentences = 12;  // of a kind; a sweep may have hundreds of runs

bool has_goodput(const proto::ComparisonReport& report) {
  return std::any_of(report.runs().begin(), report.runs().end(),
                     [](const proto::RunReport& run) { return run.has_request_goodput(); });
}

bool has_search(const proto::ComparisonReport& report) {
  return std::any_of(report.runs().begin(), report.runs().end(),
                     [](const proto::RunReport& run) { return run.has_max_goodput_search(); });
}

// A line for each run of which `sentence_of` says something.
template <typename SentenceOf>
std::string lines(const proto::ComparisonReport& report, const std::string& title, SentenceOf sentence_of) {
  std::string out;
  int count = 0;
  for (const proto::RunReport& run : report.runs()) {
    const std::string sentence = sentence_of(run);
    if (sentence.empty() || ++count > kSentences) continue;
    out += fmt::format("  {}: {}\n", run_name(report, run), sentence);
  }
  if (count > kSentences) out += fmt::format("  and {} more, in the report\n", count - kSentences);
  return out.empty() ? out : "\n" + title + ":\n" + out;
}

struct Shown {
  std::string_view figure, name, unit;
  double scale;
};
constexpr Shown kShownFigures[] = {{"mean_ttft_ms", "TTFT", "ms", 1},
                                   {"mean_tpot_ms", "TPOT", "ms", 1},
                                   {"mean_e2e_latency_ms", "latency", "s", 1e-3},
                                   {"duration", "duration", "s", 1}};

std::string range(const proto::ErrorBand& band, double scale) {
  return fmt::format("{} to {}", format_figure(band.low() * scale), format_figure(band.high() * scale));
}

// Sentences in the order in which they first came, each with the names that it is said of.
class Grouped {
 public:
  void add(const std::string& sentence, std::string name) {
    auto known = std::find_if(entries_.begin(), entries_.end(),
                              [&sentence](const auto& entry) { return entry.first == sentence; });
    if (known == entries_.end()) known = entries_.insert(entries_.end(), {sentence, {}});
    known->second.push_back(std::move(name));
  }
  bool empty() const { return entries_.empty(); }
  // The only sentence alone; of several each with its names.
  std::string text() const {
    if (entries_.size() == 1) return entries_.front().first;
    std::vector<std::string> parts;
    for (const auto& [sentence, names] : entries_)
      parts.push_back(fmt::format("{}: {}", fmt::join(names, ", "), sentence));
    return fmt::format("{}", fmt::join(parts, "; "));
  }
  // A line for each, with its names.
  std::string lines() const {
    std::string out;
    for (const auto& [sentence, names] : entries_)
      out += fmt::format("  {}: {}\n", fmt::join(names, ", "), sentence);
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> entries_;
};

std::string best_name(const proto::ComparisonReport& report) {
  return report.best_setting().empty() ? report.best() : setting_name(report, report.best_setting());
}

std::vector<std::string> row_of(const proto::ComparisonReport& report, const proto::RunReport& run,
                                bool best) {
  std::vector<std::string> row = {
      (best ? "* " : "  ") + run_name(report, run) + (run.stopped_early() ? " (stopped early)" : ""),
      format_figure(run.request_throughput())};
  append(row, goodput_cells(report, run));
  append(row,
         {format_figure(run.input_throughput()), format_figure(run.output_throughput()),
          format_figure(run.mean_ttft_ms()), format_figure(run.p99_ttft_ms()),
          format_figure(run.mean_tpot_ms()), format_figure(run.p99_tpot_ms()),
          format_figure(run.p99_itl_ms()), format_figure(run.mean_e2e_latency_ms() / 1e3), hit_rate_cell(run),
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
      line += fmt::format("{} {} {}", line.empty() ? "" : ",", run_name(report, run), early_turns(run));
  }
  return line.empty() ? line : fmt::format("\nTurns sent before the answer they reply to:{}\n", line);
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

// "138 (cached 12 %) + 54 (cached 3 %)"; of many, the least and the most.
std::string requests_by_replica(const proto::RunReport& r) {
  constexpr int kFew = 8;
  const auto cached = [](const proto::ReplicaReport& replica) {
    return replica.input_tokens() == 0 ? 0
                                       : 100 * static_cast<double>(replica.cached_tokens()) /
                                             static_cast<double>(replica.input_tokens());
  };
  if (r.replicas_size() > kFew) {
    const auto [fewest, most] =
        std::ranges::minmax_element(r.replicas(), {}, &proto::ReplicaReport::requests);
    const auto [coldest, warmest] = std::ranges::minmax_element(r.replicas(), {}, cached);
    return fmt::format("{} replicas: {} to {}, cached {:.0f} to {:.0f} %", r.replicas_size(),
                       fewest->requests(), most->requests(), cached(*coldest), cached(*warmest));
  }
  std::vector<std::string> each;
  for (const proto::ReplicaReport& replica : r.replicas()) {
    std::string group = replica.model().empty() ? "" : replica.model() + ", ";
    if (!replica.group().empty()) group += replica.group() + ", ";
    each.push_back(replica.role() == "decode"
                       ? fmt::format("{} decoded", replica.requests())
                       : fmt::format("{}{} ({}cached {:.0f} %)", replica.requests(),
                                     replica.role().empty() ? "" : " prefilled", group, cached(replica)));
  }
  return fmt::format("{}", fmt::join(each, " + "));
}

}  // namespace

std::vector<std::string> goodput_heads(const proto::ComparisonReport& report) {
  std::vector<std::string> heads;
  if (has_goodput(report)) append(heads, {"goodput", "good %"});
  if (has_search(report)) heads.push_back("max req/s");
  return heads;
}

std::vector<std::string> goodput_cells(const proto::ComparisonReport& report, const proto::RunReport& run) {
  std::vector<std::string> cells;
  if (has_goodput(report))
    append(cells, {format_figure(run.request_goodput()), fmt::format("{:.1f}", run.goodput_share() * 100)});
  if (has_search(report))
    cells.push_back(run.has_max_goodput_rate() ? format_figure(run.max_goodput_rate())
                                               : run.max_goodput_search().outcome());
  return cells;
}

std::string rate_line(const proto::ComparisonReport& report) {
  return has_search(report) ? fmt::format("\nmax req/s: {}\n", kOfTheLoad) : "";
}

std::string goodput_lines(const proto::ComparisonReport& report) {
  return lines(report, fmt::format("Highest rate within the service levels ({})", kOfTheLoad),
               [](const proto::RunReport& run) { return run.max_goodput_search().message(); }) +
         lines(report, "Overload", [](const proto::RunReport& run) { return run.overload().message(); });
}

const proto::ErrorBand* find_band(const proto::RunReport& run, std::string_view figure) {
  const auto& bands = run.error_bands().bands();
  const auto found = std::find_if(bands.begin(), bands.end(),
                                  [figure](const proto::ErrorBand& band) { return band.figure() == figure; });
  return found == bands.end() ? nullptr : &*found;
}

std::string error_band_text(const proto::RunReport& run) {
  std::vector<std::string> parts;
  for (const Shown& shown : kShownFigures) {
    if (const proto::ErrorBand* band = find_band(run, shown.figure))
      parts.push_back(fmt::format("{} {} {}", shown.name, range(*band, shown.scale), shown.unit));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string error_band_basis(const proto::RunReport& run) {
  Grouped bases;  // figures that rest on the same loads are named together; not at all where all do
  for (const Shown& shown : kShownFigures) {
    if (const proto::ErrorBand* band = find_band(run, shown.figure))
      bases.add(
          fmt::format("{} measured loads of {} servers {}", band->loads(), band->servers(), band->like()),
          std::string(shown.name));
  }
  std::string out = bases.text();
  const auto& bands = run.error_bands().bands();
  const auto widened = std::find_if(bands.begin(), bands.end(),
                                    [](const proto::ErrorBand& band) { return !band.widened().empty(); });
  if (widened != bands.end()) out += fmt::format("; wider, for {}", widened->widened());
  return out;
}

std::string error_band_lines(const proto::ComparisonReport& report) {
  TextTable table;
  table.rows.push_back({"  error bands"});
  for (const Shown& shown : kShownFigures)
    table.rows.back().push_back(fmt::format("{} {}", shown.name, shown.unit));
  Grouped bases;
  double coverage = 0;
  for (const proto::RunReport& run : report.runs()) {
    if (!run.has_error_bands()) continue;
    coverage = run.error_bands().coverage();
    std::vector<std::string> row = {"  " + run_name(report, run)};
    for (const Shown& shown : kShownFigures) {
      const proto::ErrorBand* const band = find_band(run, shown.figure);
      row.push_back(band == nullptr ? "" : range(*band, shown.scale));
    }
    table.rows.push_back(std::move(row));
    bases.add(error_band_basis(run), run_name(report, run));
  }
  if (bases.empty()) return "";
  return fmt::format(
      "\n{}  {:.0f} of 10 measurements lie in such bands, which are as wide as others' errors:\n{}",
      to_text(table, false), 10 * coverage, bases.lines());
}

std::string extrapolation_lines(const proto::ComparisonReport& report) {
  Grouped messages;
  for (const proto::RunReport& run : report.runs()) {
    for (const proto::Extrapolation& beyond : run.extrapolations())
      messages.add(beyond.message(), run_name(report, run));
  }
  return messages.empty() ? "" : fmt::format("\nBeyond what was measured:\n{}", messages.lines());
}

std::string no_server_lines(const proto::ComparisonReport& report) {
  std::set<std::string> sentences;
  for (const proto::RunReport& run : report.runs())
    if (run.has_no_server()) sentences.insert(run.no_server());
  std::string out;
  for (const std::string& sentence : sentences) out += fmt::format("Not measured: {}\n", sentence);
  return out.empty() ? out : out + "\n";
}

std::string certainty_line(const proto::ComparisonReport& report) {
  return report.certainty().empty() ? "" : report.certainty() + "\n";
}

std::string comparison_table(const proto::ComparisonReport& report, bool colour, int width) {
  std::vector<std::string> head = {"  backend", "req/s"};
  append(head, goodput_heads(report));
  append(head, {"input tok/s", "output tok/s", "TTFT ms", "p99", "TPOT ms", "p99", "ITL p99", "latency s",
                "hit %", "KV peak %", "retracted"});
  TextTable table{.rows = {std::move(head)}, .width = width, .less_wanted = less_wanted_columns()};
  for (const proto::RunReport& run : report.runs())
    table.rows.push_back(row_of(report, run, is_best(report, run)));
  std::string out = no_server_lines(report) + to_text(table, colour) + hit_rate_line(report);
  out += early_turns_line(report);
  out += goodput_lines(report);
  out += error_band_lines(report) + extrapolation_lines(report);
  if (!report.runs().empty() && report.runs(0).clock() == "wall")
    out += "\n" + std::string(kWallClock) + "\n";
  out += refused_backends(report);
  out += report.best().empty() ? "\nNo best backend: " : "\nBest: " + best_name(report) + " (";
  out += report.best_reason() + (report.best().empty() ? "\n" : ")\n");
  out += certainty_line(report);
  return out;
}

std::string run_summary(const proto::RunReport& r) {
  std::string out;
  const auto line = [&out](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<34}{}\n", name, value);
  };
  if (r.has_no_server()) line("Not measured:", r.no_server());
  line("Backend (prefill+decode):", r.backend());
  if (r.clock() == "wall") line("Clock:", std::string(kWallClock));
  line("Successful requests:", std::to_string(r.completed()));
  if (r.failed() > 0) line("Refused requests:", std::to_string(r.failed()));
  if (r.has_cancelled()) line("Cancelled requests:", std::to_string(r.cancelled()));
  if (r.has_elasticity()) {
    const proto::Elasticity& elasticity = r.elasticity();
    if (!elasticity.message().empty()) line("Lost requests:", elasticity.message());
    line("Attempts of the router again:", std::to_string(elasticity.retries()));
    line("Most replicas up at a time:", std::to_string(elasticity.most_replicas()));
    line("GPU seconds:", fmt::format("{} ({} a completed request)", format_figure(elasticity.gpu_seconds()),
                                     format_figure(elasticity.gpu_seconds_per_request())));
  }
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
  if (r.has_max_goodput_search()) {
    line("Max goodput rate:", r.max_goodput_search().message());
    line("", std::string(kOfTheLoad));
  }
  if (r.has_overload()) line("Overload:", r.overload().message());
  if (r.has_cost())
    line("Cost:", fmt::format("{} ({} a million tokens, {} a thousand requests)", format_figure(r.cost()),
                              format_figure(r.cost_per_million_tokens()),
                              format_figure(r.cost_per_thousand_requests())));
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
  line("Cache hit rate:", r.hit_rate_unknown()
                              ? "unknown: the trace says how long prompts are, not what they hold"
                              : fmt::format("{:.1f} %", r.cache_hit_rate() * 100));
  if (r.host_pool_tokens() > 0)
    line("  tokens from device, host, storage:",
         fmt::format("{}, {}, {}", r.cached_device_tokens(), r.cached_host_tokens(),
                     r.cached_storage_tokens()));
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
  if (r.replicas_size() > 0) line("Requests by replica:", requests_by_replica(r));
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
