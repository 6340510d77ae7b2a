#include "launch/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tpsim::launch {

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

}  // namespace tpsim::launch
