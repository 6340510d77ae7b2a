#include "launch/report/goodput_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/report/run_names.h"
#include "launch/report/text_table.h"

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

std::string goodput_lines(const proto::ComparisonReport& report) {
  return lines(report, "Highest rate within the service levels",
               [](const proto::RunReport& run) { return run.max_goodput_search().message(); }) +
         lines(report, "Overload", [](const proto::RunReport& run) { return run.overload().message(); });
}

}  // namespace tpsim::launch
