// The report of `tpsim validate`: all rows, what they are grouped by, the figures that they hold, and what
// they come to.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/error_bands/residuals.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

// Settings closer than this in a measurement are not told apart.
inline constexpr double kTie = 0.03;

// `rows` in the order of the measurements. Refused ones go to not_asked, what they carry for the page stays
// on them.
proto::Validation make_validation(std::vector<proto::ValidatedRow> rows);

// As validation.json holds it: without what is for the page.
nlohmann::ordered_json validation_json(proto::Validation validation);

// For a terminal.
std::string validation_table(const proto::Validation& validation, bool colour);

// Of published figures of generations: each row, and errors by what was timed and by source. Empty without
// any.
std::string published_table(const proto::Validation& validation, bool colour);
bool is_published_generation(const proto::ValidatedRow& row);

// validation.html: one page that opens offline.
std::string validation_page(const proto::Validation& validation);

// The rows of `validation` as error bands rest on them, stretches included. Loads that have no server's name
// count as one server by model, settings (of which their name has a hash), GPU and number of GPUs. A latency
// that was not measured is TTFT and a token's time for each further token of the answer, where those were;
// the duration of a closed loop that was not is off as its latency is.
ResidualTable residuals_of(const proto::Validation& validation);

// Gives the figures of `row`, which has its traits, the bands of an answer of today, made without the row's
// server. `carried_over` as for error_band().
void add_answered_bands(bool carried_over, proto::ValidatedRow& row);

// Adds bands: how many of the rows lie in the bands that are made of the other servers' rows, and in those
// that answers have.
void check_bands(proto::Validation& validation);

// What rows are grouped by.
struct RowGrouping {
  std::string_view by;                                     // ValidationGroup.by
  std::string (*name_of)(const proto::ValidatedRow& row);  // empty: the row is in no such group
};
// "all" comes first.
std::span<const RowGrouping> row_groupings();

// The row's server; loads that name none count as one server by model, settings, GPU and number of GPUs.
std::string server_of(const proto::ValidatedRow& row);

// A figure of a row and the errors of its group.
struct RowFigure {
  bool (proto::ValidatedRow::*has)() const;
  const proto::MeasuredFigure& (proto::ValidatedRow::*get)() const;
  proto::MeasuredFigure* (proto::ValidatedRow::*change)();
  bool (proto::ValidationGroup::*has_errors)() const;
  const proto::ErrorFigures& (proto::ValidationGroup::*errors)() const;
  proto::ErrorFigures* (proto::ValidationGroup::*change_errors)();
  std::string_view name;                       // "ttft_ms"
  std::string_view title;                      // "TTFT"
  std::optional<double> MeasuredFigures::*of;  // the same of a measured or a served load
};
std::span<const RowFigure> row_figures();

// The page's template, which the build embeds.
std::string_view validation_template();

}  // namespace tpsim::launch
