#include "launch/report/error_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/report/comparison.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

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

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : std::string(between)) + part;
  return out;
}

}  // namespace

std::string error_band_text(const proto::RunReport& run) {
  std::vector<std::string> parts;
  for (const Shown& shown : kShownFigures) {
    for (const proto::ErrorBand& band : run.error_bands().bands())
      if (band.figure() == shown.figure)
        parts.push_back(fmt::format("{} {} {}", shown.name, range(band, shown.scale), shown.unit));
  }
  return joined(parts, ", ");
}

std::string error_band_basis(const proto::RunReport& run) {
  // Figures that rest on the same loads are named together; not at all where all do.
  std::vector<std::pair<std::string, std::vector<std::string>>> bases;
  for (const Shown& shown : kShownFigures) {
    for (const proto::ErrorBand& band : run.error_bands().bands()) {
      if (band.figure() != shown.figure) continue;
      const std::string basis =
          fmt::format("{} measured loads of {} servers {}", band.loads(), band.servers(), band.like());
      auto known = std::find_if(bases.begin(), bases.end(),
                                [&basis](const auto& entry) { return entry.first == basis; });
      if (known == bases.end()) known = bases.insert(bases.end(), {basis, {}});
      known->second.emplace_back(shown.name);
    }
  }
  std::vector<std::string> parts;
  parts.reserve(bases.size());
  for (const auto& [basis, names] : bases)
    parts.push_back(bases.size() == 1 ? basis : fmt::format("{}: {}", joined(names, ", "), basis));
  std::string out = joined(parts, "; ");
  const auto& bands = run.error_bands().bands();
  const auto widened = std::find_if(bands.begin(), bands.end(),
                                    [](const proto::ErrorBand& band) { return !band.widened().empty(); });
  if (widened != bands.end()) out += fmt::format("; wider, for {}", widened->widened());
  return out;
}

std::string error_band_lines(const proto::ComparisonReport& report) {
  TextTable table;
  std::vector<std::pair<std::string, std::vector<std::string>>> bases;
  double coverage = 0;
  for (const proto::RunReport& run : report.runs()) {
    if (!run.has_error_bands()) continue;
    coverage = run.error_bands().coverage();
    std::vector<std::string> row = {"  " + run_name(report, run)};
    for (const Shown& shown : kShownFigures) {
      row.emplace_back();
      for (const proto::ErrorBand& band : run.error_bands().bands())
        if (band.figure() == shown.figure) row.back() = range(band, shown.scale);
    }
    table.rows.push_back(std::move(row));
    const std::string basis = error_band_basis(run);
    auto known = std::find_if(bases.begin(), bases.end(),
                              [&basis](const auto& entry) { return entry.first == basis; });
    if (known == bases.end()) known = bases.insert(bases.end(), {basis, {}});
    known->second.push_back(run_name(report, run));
  }
  if (table.rows.empty()) return "";
  std::vector<std::string> head = {"  error bands"};
  for (const Shown& shown : kShownFigures) head.push_back(fmt::format("{} {}", shown.name, shown.unit));
  table.rows.insert(table.rows.begin(), std::move(head));
  std::string out = "\n" + to_text(table, false);
  out += fmt::format("  {:.0f} of 10 measurements lie in such bands, which are as wide as others' errors:\n",
                     10 * coverage);
  for (const auto& [basis, names] : bases) out += fmt::format("  {}: {}\n", joined(names, ", "), basis);
  return out;
}

std::string extrapolation_lines(const proto::ComparisonReport& report) {
  std::vector<std::pair<std::string, std::vector<std::string>>> messages;
  for (const proto::RunReport& run : report.runs()) {
    for (const proto::Extrapolation& beyond : run.extrapolations()) {
      auto known = std::find_if(messages.begin(), messages.end(),
                                [&beyond](const auto& entry) { return entry.first == beyond.message(); });
      if (known == messages.end()) known = messages.insert(messages.end(), {beyond.message(), {}});
      known->second.push_back(run_name(report, run));
    }
  }
  std::string out;
  for (const auto& [message, names] : messages)
    out += fmt::format("  {}: {}\n", joined(names, ", "), message);
  return out.empty() ? "" : "\nBeyond what was measured:\n" + out;
}

std::string certainty_line(const proto::ComparisonReport& report) {
  return report.certainty().empty() ? "" : report.certainty() + "\n";
}

}  // namespace tpsim::launch
