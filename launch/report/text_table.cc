#include "launch/report/text_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "launch/report/comparison.h"

namespace tpsim::launch {
namespace {

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

}  // namespace

std::string format_figure(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string to_text(const TextTable& table, bool colour) {
  std::vector<std::size_t> widths;
  for (const auto& row : table.rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const auto& row = table.rows[r];
    if (colour) out += r == 0 ? "\033[2m" : row[0].starts_with('*') ? "\033[1;32m" : "";
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) out += "  ";
      out += i < table.left_columns ? fmt::format("{:<{}}", row[i], widths[i])
                                    : fmt::format("{:>{}}", row[i], widths[i]);
    }
    if (colour) out += "\033[0m";
    out += "\n";
  }
  return out;
}

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

std::string goodput_lines(const proto::ComparisonReport& report) {
  return lines(report, "Highest rate within the service levels",
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

std::string certainty_line(const proto::ComparisonReport& report) {
  return report.certainty().empty() ? "" : report.certainty() + "\n";
}

}  // namespace tpsim::launch
