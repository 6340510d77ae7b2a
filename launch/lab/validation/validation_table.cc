// What `tpsim validate` prints.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "launch/lab/validation/validation_report.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

constexpr std::size_t kWorst = 8;

using Cells = std::vector<std::string>;
const Cells kNothing(3);

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

// Of a ValidatedRow or a NotAsked.
template <typename Row>
std::string name_of(const Row& row) {
  return row.has_id() ? row.id() : row.server() + " " + row.load();
}

std::string rows_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.rows.push_back({"predicted, measured and their ratio", "TPOT ms", "of", "x", "TTFT ms", "of", "x",
                        "latency ms", "of", "x", "duration s", "of", "x", "output tok/s", "of", "x"});
  const bool cached = std::ranges::any_of(validation.rows(), &proto::ValidatedRow::has_cached_tokens);
  if (cached) append(table.rows.back(), {"cached tok", "of"});
  for (const proto::ValidatedRow& row : validation.rows()) {
    if (row.has_ms() || row.has_attention_ms() || is_published_generation(row)) continue;
    Cells cells = {name_of(row)};
    for (const RowFigure& figure : row_figures()) {
      const proto::MeasuredFigure& of = (row.*figure.get)();
      append(cells, (row.*figure.has)() ? Cells{format_figure(of.predicted()), format_figure(of.measured()),
                                                fmt::format("{:.3f}", of.predicted() / of.measured())}
                                        : kNothing);
    }
    if (row.has_cached_tokens())
      append(cells, {fmt::format("{:.0f}", row.cached_tokens().predicted()),
                     fmt::format("{:.0f}", row.cached_tokens().measured())});
    else if (cached)
      append(cells, {"", ""});
    table.rows.push_back(std::move(cells));
  }
  return to_text(table, colour);
}

// Passes of diffusion pipelines; empty without any.
std::string passes_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.rows.push_back(
      {"a pass: predicted, measured and their ratio", "ms", "of", "x", "attention ms", "of", "x"});
  double errors = 0, attention_errors = 0;
  int count = 0, attention_count = 0;
  const auto add = [](Cells& cells, bool has, const proto::MeasuredFigure& figure, double& sum, int& rows) {
    if (!has) return append(cells, kNothing);
    const double ratio = figure.predicted() / figure.measured();
    sum += std::abs(ratio - 1);
    ++rows;
    append(cells, {format_figure(figure.predicted()), format_figure(figure.measured()),
                   fmt::format("{:.3f}", ratio)});
  };
  for (const proto::ValidatedRow& row : validation.rows()) {
    if (!row.has_ms() && !row.has_attention_ms()) continue;
    Cells cells = {name_of(row)};
    add(cells, row.has_ms(), row.ms(), errors, count);
    add(cells, row.has_attention_ms(), row.attention_ms(), attention_errors, attention_count);
    table.rows.push_back(std::move(cells));
  }
  if (table.rows.size() == 1) return "";
  table.rows.push_back({"mean error, %", "", "", count > 0 ? percent(errors / count) : "", "", "",
                        attention_count > 0 ? percent(attention_errors / attention_count) : ""});
  return to_text(table, colour);
}

std::string groups_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.left_columns = 2;
  table.rows.push_back({"error, %", "", "rows", "TPOT mean", "median", "p90", "TTFT mean", "median", "p90",
                        "latency mean", "median", "p90", "duration mean", "median", "p90",
                        "output tok/s mean", "median", "p90"});
  for (const proto::ValidationGroup& group : validation.groups()) {
    const std::uint64_t rows = std::max({group.tpot_ms().count(), group.ttft_ms().count(),
                                         group.e2e_ms().count(), group.duration_s().count()});
    Cells cells = {group.by(), group.name(), std::to_string(rows)};
    for (const RowFigure& figure : row_figures()) {
      const proto::ErrorFigures& errors = (group.*figure.errors)();
      append(cells, (group.*figure.has_errors)()
                        ? Cells{percent(errors.mean()), percent(errors.median()), percent(errors.p90())}
                        : kNothing);
    }
    table.rows.push_back(std::move(cells));
  }
  return to_text(table, colour);
}

// Mean errors of the groups that were left out, and of all: by the profile's constants, by those fitted to
// all loads, and by those fitted to the others.
std::string left_out_table(const proto::Validation& validation, bool colour) {
  const std::string& by = validation.leave_one_out().by();
  TextTable table;
  table.rows.push_back({fmt::format("mean error, %, with each {} left out of the fit", by), "rows"});
  for (const RowFigure& figure : row_figures())
    append(table.rows.back(), {std::string(figure.title), "refitted", "left out"});
  for (const std::string& wanted : {by, std::string("all")}) {
    for (const proto::ValidationGroup& group : validation.groups()) {
      if (group.by() != wanted) continue;
      Cells cells = {group.name(), ""};
      std::uint64_t rows = 0;
      for (const RowFigure& figure : row_figures()) {
        const proto::ErrorFigures& errors = (group.*figure.errors)();
        rows = std::max(rows, errors.left_out().count());
        append(cells, errors.has_left_out() ? Cells{percent(errors.mean()), percent(errors.refitted().mean()),
                                                    percent(errors.left_out().mean())}
                                            : kNothing);
      }
      cells[1] = std::to_string(rows);
      if (rows > 0) table.rows.push_back(std::move(cells));
    }
  }
  if (table.rows.size() == 1)
    return fmt::format("No {} could be left out: each GPU's loads are of one.\n", by);
  return to_text(table, colour);
}

// Where the fits put each constant, and why one did not move it.
std::string constants_table(const proto::LeaveOneOut& leave_one_out, bool colour) {
  const auto microseconds = [](double seconds) { return fmt::format("{:.4g}", 1e6 * seconds); };
  TextTable table;
  table.left_columns = 2;
  table.rows.push_back(
      {"host's constants, us", "", "before", "refitted", "left out: least", "most", "kept in"});
  std::string kept;
  for (const proto::ConstantsFit& to_all : leave_one_out.fits()) {
    if (!to_all.left_out().empty()) continue;
    for (int c = 0; c < to_all.constants_size(); ++c) {
      const proto::FittedConstant& constant = to_all.constants(c);
      double least = std::numeric_limits<double>::infinity(), most = 0;
      int fits = 0, left = 0;
      for (const proto::ConstantsFit& fit : leave_one_out.fits()) {
        if (fit.left_out().empty() || fit.hardware() != to_all.hardware()) continue;
        const proto::FittedConstant& there = fit.constants(c);
        ++fits;
        left += there.kept().empty() ? 0 : 1;
        least = std::min(least, there.fitted());
        most = std::max(most, there.fitted());
      }
      table.rows.push_back({constant.name(), to_all.hardware(), microseconds(constant.before()),
                            microseconds(constant.fitted()), microseconds(least), microseconds(most),
                            fmt::format("{} of {}", left, fits)});
      if (!constant.kept().empty())
        kept += fmt::format("  {} on {}: {}\n", constant.name(), to_all.hardware(), constant.kept());
    }
  }
  if (table.rows.size() == 1) return "";
  return "\n" + to_text(table, colour) +
         (kept.empty() ? "" : "Kept as they were by the fit to all:\n" + kept);
}

// The rows that are furthest off, by the figure that is worst.
std::string worst_rows(const proto::Validation& validation) {
  std::vector<std::pair<double, std::string>> worst;
  for (const proto::ValidatedRow& row : validation.rows()) {
    for (const RowFigure& figure : row_figures()) {
      if (!(row.*figure.has)()) continue;
      const double error = (row.*figure.get)().predicted() / (row.*figure.get)().measured() - 1;
      worst.emplace_back(std::abs(error),
                         fmt::format("  {:+.0f} % {} of {}", 100 * error, figure.title, name_of(row)));
    }
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  worst.resize(std::min(worst.size(), kWorst));
  std::string text = "Furthest off:\n";
  for (const auto& [error, line] : worst) text += line + "\n";
  return text;
}

std::string steps_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.left_columns = 2;
  table.rows.push_back({"single steps", "", "compared", "without", "median %", "p90 %", "ratio"});
  for (const proto::StepComparison& steps : validation.steps())
    table.rows.push_back({steps.server(), steps.mode(), std::to_string(steps.steps()),
                          std::to_string(steps.without_counterpart()), percent(steps.error().median()),
                          percent(steps.error().p90()), fmt::format("{:.3f}", steps.error().median_ratio())});
  return to_text(table, colour);
}

std::string pools_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.rows.push_back({"KV pool, tokens", "predicted", "measured", "error %"});
  for (const proto::ValidatedPool& pool : validation.pools())
    table.rows.push_back({pool.server(), std::to_string(pool.predicted()), std::to_string(pool.measured()),
                          fmt::format("{:+.2f}", 100 * pool.error())});
  return to_text(table, colour);
}

std::string pairs_text(const proto::ValidatedPairs& pairs) {
  std::string text =
      fmt::format("Which of two settings is faster: right in {} of {} pairs more than {:.0f} % apart\n",
                  pairs.right(), pairs.count(), 100 * kTie);
  constexpr int kShown = 10;
  for (int i = 0; i < std::min(pairs.wrong_size(), kShown); ++i) {
    const proto::ValidatedPair& wrong = pairs.wrong(i);
    text += fmt::format("  {} --tp {} on {}, {}: {} is slower than {} by {:.3f}, predicted {:.3f}\n",
                        wrong.model(), wrong.tp(), wrong.hardware(), wrong.load(), wrong.slower(),
                        wrong.faster(), wrong.measured(), wrong.predicted());
  }
  if (pairs.wrong_size() > kShown) text += fmt::format("  and {} more\n", pairs.wrong_size() - kShown);
  return text;
}

std::string bands_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.left_columns = 2;
  table.rows.push_back(
      {"error bands, without the load's server", "", "loads", "inside %", "asked %", "width %"});
  for (const proto::BandCoverage& bands : validation.bands())
    table.rows.push_back({bands.figure(), bands.like(), std::to_string(bands.count()),
                          percent(static_cast<double>(bands.inside()) / static_cast<double>(bands.count())),
                          percent(bands.asked()), percent(bands.width())});
  return to_text(table, colour);
}

// The same sentence once, with how many rows it is about.
std::string not_asked_text(const proto::Validation& validation) {
  std::vector<std::pair<std::string, std::pair<std::string, int>>> reasons;
  for (const proto::NotAsked& row : validation.not_asked()) {
    const auto found = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& entry) { return entry.first == row.reason(); });
    if (found == reasons.end()) {
      reasons.push_back({row.reason(), {name_of(row), 1}});
    } else {
      ++found->second.second;
    }
  }
  std::string text = fmt::format("Could not be asked: {} rows\n", validation.not_asked_size());
  for (const auto& [reason, rows] : reasons)
    text += fmt::format("  {}{}: {}\n", rows.first,
                        rows.second > 1 ? fmt::format(" and {} more", rows.second - 1) : "", reason);
  return text;
}

std::string kernels_table(const proto::Validation& validation, bool colour) {
  TextTable table;
  table.left_columns = 4;
  table.rows.push_back({"kernels", "", "", "", "rows", "not asked", "median %", "p90 %", "ratio"});
  for (const proto::ValidatedKernel& kernel : validation.kernels())
    table.rows.push_back({kernel.system(), kernel.table(), kernel.backend(), kernel.format(),
                          std::to_string(kernel.error().count()), std::to_string(kernel.not_asked()),
                          percent(kernel.error().median()), percent(kernel.error().p90()),
                          fmt::format("{:.3f}", kernel.error().median_ratio())});
  return to_text(table, colour);
}

}  // namespace

std::string validation_table(const proto::Validation& validation, bool colour) {
  std::vector<std::string> parts;
  const std::string passes = passes_table(validation, colour);
  if (!passes.empty()) parts.push_back(passes);
  const std::string published = published_table(validation, colour);
  if (!published.empty()) parts.push_back(published);
  if (!validation.groups().empty()) {  // there are loads
    parts.push_back(rows_table(validation, colour));
    parts.push_back(groups_table(validation, colour));
    if (validation.has_leave_one_out())
      parts.push_back(left_out_table(validation, colour) +
                      constants_table(validation.leave_one_out(), colour));
    parts.push_back(worst_rows(validation));
  }
  if (!validation.steps().empty()) parts.push_back(steps_table(validation, colour));
  if (!validation.pools().empty()) parts.push_back(pools_table(validation, colour));
  if (validation.pairs().count() > 0) parts.push_back(pairs_text(validation.pairs()));
  if (!validation.bands().empty()) parts.push_back(bands_table(validation, colour));
  if (!validation.not_asked().empty()) parts.push_back(not_asked_text(validation));
  if (!validation.kernels().empty()) parts.push_back(kernels_table(validation, colour));
  return fmt::format("{}", fmt::join(parts, "\n"));
}

}  // namespace tpsim::launch
