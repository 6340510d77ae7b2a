// What rows of a validation are grouped by, and the figures that they hold.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launch/lab/measurements/measured_load.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

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

}  // namespace tpsim::launch
