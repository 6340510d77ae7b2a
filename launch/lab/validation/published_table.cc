// What `tpsim validate` prints of published figures of generations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "launch/lab/served/batch_comparison.h"
#include "launch/lab/validation/validation_report.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

using Row = proto::ValidatedRow;
using Cells = std::vector<std::string>;

struct Compared {
  bool (Row::*has)() const;
  const proto::MeasuredFigure& (Row::*get)() const;
  const char* name;
  const char* within_name;
  double within;  // error that counts as near
};
// Near as issue 22 asks: times and speed-ups within 15 %, memory within 5 %.
constexpr Compared kCompared[] = {
    {&Row::has_seconds, &Row::seconds, "seconds", "< 15", 0.15},
    {&Row::has_speedup, &Row::speedup, "speed-up", "< 15", 0.15},
    {&Row::has_peak_memory_gib, &Row::peak_memory_gib, "peak GiB", "< 5", 0.05},
};

std::string hundredths(double share) { return fmt::format("{:.1f}", 100 * share); }

// From microseconds of a kernel to minutes of a video.
std::string digits(double value) { return fmt::format("{:.4g}", value); }

using Chosen = std::function<bool(const Row&)>;

// One line of the errors: of each figure the count, mean error, share that is near, median ratio.
Cells errors_of(const std::string& name, const proto::Validation& validation, const Chosen& chosen) {
  Cells cells = {name};
  for (const Compared& figure : kCompared) {
    std::vector<double> ratios;
    std::size_t near = 0;
    for (const Row& row : validation.rows()) {
      if (!chosen(row) || !(row.*figure.has)()) continue;
      const proto::MeasuredFigure& of = (row.*figure.get)();
      ratios.push_back(of.predicted() / of.measured());
      near += std::abs(ratios.back() - 1) <= figure.within ? 1 : 0;
    }
    if (ratios.empty()) {
      append(cells, Cells(4));
      continue;
    }
    const proto::ErrorFigures errors = error_figures(ratios);
    append(cells, {std::to_string(errors.count()), hundredths(errors.mean()),
                   hundredths(static_cast<double>(near) / static_cast<double>(ratios.size())),
                   fmt::format("{:.3f}", errors.median_ratio())});
  }
  return cells;
}

std::vector<std::string> names_of(const proto::Validation& validation,
                                  const std::string& (Row::*of)() const) {
  std::vector<std::string> out;
  for (const Row& row : validation.rows())
    if (is_published_generation(row) && std::ranges::find(out, (row.*of)()) == out.end())
      out.push_back((row.*of)());
  return out;
}

std::string rows_text(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.left_columns = 4;
  table.rows.push_back({"published: predicted, measured and their ratio", "", "", "GPUs"});
  for (const Compared& figure : kCompared) append(table.rows.back(), {figure.name, "of", "x"});
  for (const Row& row : validation.rows()) {
    if (!is_published_generation(row)) continue;
    Cells cells = {fmt::format("{}{}", row.id(), row.solid() ? "" : " ?"), row.load_kind(), row.load(),
                   fmt::format("{} x {}{}{}", row.tp(), row.hardware(), row.settings().empty() ? "" : ", ",
                               row.settings())};
    for (const Compared& figure : kCompared) {
      const proto::MeasuredFigure& of = (row.*figure.get)();
      append(cells, (row.*figure.has)() ? Cells{digits(of.predicted()), digits(of.measured()),
                                                fmt::format("{:.3f}", of.predicted() / of.measured())}
                                        : Cells(3));
    }
    table.rows.push_back(std::move(cells));
  }
  return to_text(table, colour);
}

std::string errors_text(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.rows.push_back({"published: error, %"});
  for (const Compared& figure : kCompared)
    append(table.rows.back(), {figure.name, "mean %", fmt::format("{} %", figure.within_name), "ratio"});
  const auto add = [&](const std::string& name, const Chosen& chosen) {
    Cells cells = errors_of(name, validation, chosen);
    const bool filled =
        std::ranges::any_of(cells.begin() + 1, cells.end(), [](const auto& c) { return !c.empty(); });
    if (filled) table.rows.push_back(std::move(cells));
  };
  add("all", is_published_generation);
  add("all, solid", [](const Row& row) { return is_published_generation(row) && row.solid(); });
  for (const std::string& kind : names_of(validation, &Row::load_kind)) {
    add(kind, [&](const Row& row) { return row.load_kind() == kind; });
    add(kind + ", solid", [&](const Row& row) { return row.load_kind() == kind && row.solid(); });
  }
  for (const std::string& source : names_of(validation, &Row::source)) {
    add(source, [&](const Row& row) { return row.source() == source; });
    for (const std::string& kind : names_of(validation, &Row::load_kind))
      if (source.find("perf_baselines") != std::string::npos)
        add("  " + kind, [&](const Row& row) { return row.source() == source && row.load_kind() == kind; });
  }
  return to_text(table, colour);
}

}  // namespace

bool is_published_generation(const Row& row) {
  return row.has_seconds() || row.has_speedup() || row.has_peak_memory_gib();
}

std::string published_table(const proto::Validation& validation, bool colour) {
  if (std::ranges::none_of(validation.rows(), is_published_generation)) return "";
  std::string text = rows_text(validation, colour) + "\n" + errors_text(validation, colour);
  text +=
      "?: not solid, as the file says: shape, GPU or settings are inferred, or the clock is no device's.\n";
  const bool bounds = std::ranges::any_of(validation.rows(), [](const Row& row) {
    return row.source().find("perf_baselines") != std::string::npos;
  });
  if (bounds)
    text +=
        "SGLang's perf_baselines are bounds, not means: most are the slowest of five runs or more plus 5 %, "
        "and of\nallocated memory plus 1 %; true times are up to 10 % shorter. Its stage and step clocks are "
        "the host's.\n";
  return text;
}

}  // namespace tpsim::launch
