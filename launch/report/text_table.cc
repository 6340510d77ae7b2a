#include "launch/report/text_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tpsim::launch {

std::string format_figure(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

namespace {

std::vector<std::size_t> widths_of(const TextTable& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table.rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

bool fits(const TextTable& table) {
  const std::vector<std::size_t> widths = widths_of(table);
  const std::size_t all = std::accumulate(widths.begin(), widths.end(), 2 * widths.size());
  return table.width <= 0 || all <= static_cast<std::size_t>(table.width) + 2;
}

// Takes columns out until the table fits; returns their titles.
std::vector<std::string> narrow(TextTable& table) {
  std::vector<std::string> gone;
  for (const std::string& title : table.less_wanted) {
    if (fits(table)) break;
    const auto& head = table.rows.front();
    const auto found = std::find(head.rbegin(), head.rend(), title);
    if (found == head.rend()) continue;
    const auto column = head.rend() - found - 1;
    for (auto& row : table.rows) row.erase(row.begin() + column);
    if (std::find(gone.begin(), gone.end(), title) == gone.end()) gone.push_back(title);
  }
  return gone;
}

}  // namespace

std::string to_text(TextTable table, bool colour) {
  const std::vector<std::string> gone = narrow(table);
  const std::vector<std::size_t> widths = widths_of(table);
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
  if (!gone.empty())
    out += fmt::format("  (in the report, or on a wider terminal: {})\n", fmt::join(gone, ", "));
  return out;
}

}  // namespace tpsim::launch
