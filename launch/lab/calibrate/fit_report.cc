#include "launch/lab/calibrate/fit_report.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "launch/report/text_table.h"

namespace tpsim::calibrate {
namespace {

using launch::TextTable;

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

// Seconds in microseconds.
std::string shown(const Coefficient& coefficient, double value) {
  return coefficient.field.ends_with("seconds") ? fmt::format("{:.4g} us", 1e6 * value)
                                                : fmt::format("{:.4g}", value);
}

std::string fitted(const ServingFit& fit, bool colour) {
  TextTable table;
  table.rows.push_back({"fitted", "before", "after", "+- %", "rows", "error left, %", "p90"});
  for (const CoefficientChange& change : fit.changes) {
    if (!change.fitted.told) continue;
    table.rows.push_back({change.coefficient.name() + (change.fitted.at_bound ? " (at its bound)" : ""),
                          shown(change.coefficient, change.before), shown(change.coefficient, change.after),
                          percent(std::exp(change.fitted.deviation) - 1), std::to_string(change.rows),
                          percent(change.left.median()), percent(change.left.p90())});
  }
  if (table.rows.size() == 1) {
    return fit.worse ? "Nothing was fitted: rows held out would come no closer than they are.\n"
                     : "Nothing was fitted: these rows tell none of the coefficients.\n";
  }
  return to_text(table, colour);
}

std::string errors(const ServingFit& fit, bool colour) {
  TextTable table;
  table.rows.push_back(
      {"error of rows held out, %", "rows", "median before", "after", "p90 before", "after"});
  for (const KindErrors& kind : fit.errors)
    table.rows.push_back({to_string(kind.kind), std::to_string(kind.before.count()),
                          percent(kind.before.median()), percent(kind.after.median()),
                          percent(kind.before.p90()), percent(kind.after.p90())});
  return table.rows.size() == 1 ? "" : "\n" + to_text(table, colour);
}

}  // namespace

std::string kernel_report(const std::vector<KernelFit>& fits, bool colour) {
  TextTable table;
  table.left_columns = 2;
  table.rows.push_back(
      {"class", "table", "rows", "left out", "median error before, %", "after", "p90 before", "after"});
  std::string left;
  for (const auto& [name, source, fit, reason] : fits) {
    if (!reason.empty()) left += fmt::format("  {}: {}\n", name, reason);
    if (fit.before.rows == 0 || !reason.empty()) continue;
    table.rows.push_back({name, source, std::to_string(fit.rows), std::to_string(fit.before.rows),
                          percent(fit.before.median), percent(fit.left_out.median), percent(fit.before.p90),
                          percent(fit.left_out.p90)});
  }
  std::string out = table.rows.size() == 1 ? "No class of kernels was fitted.\n" : to_text(table, colour);
  if (!left.empty()) out += "\nLeft as they were:\n" + left;
  return out;
}

std::string fit_report(const ServingRows& rows, const ServingFit& fit, bool colour) {
  std::string out = fmt::format("{} rows of {} steps, {} loads; {} of them held out\n\n",
                                fit.rows + fit.held_out, rows.num_steps(), rows.num_loads(), fit.held_out);
  out += fitted(fit, colour);
  std::string left;
  for (const CoefficientChange& change : fit.changes)
    if (!change.fitted.told)
      left += fmt::format("  {}: {}\n", change.coefficient.name(), change.fitted.reason);
  if (!left.empty()) out += "\nLeft as they were:\n" + left;
  std::string refused;
  for (const RefusedLoad& load : rows.refused()) refused += fmt::format("  {}: {}\n", load.name, load.reason);
  if (!refused.empty()) out += "\nNot asked:\n" + refused;
  out += errors(fit, colour);
  return out;
}

}  // namespace tpsim::calibrate
