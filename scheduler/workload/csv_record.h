// One line of a CSV trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/workload/trace_input.h"

namespace tpsim::scheduler {

// Columns by name, as the header line names them, in any order.
class CsvRecord {
 public:
  // Reads the header. `columns` are those that will be asked for by index; `optional_from` and the ones
  // after it may be absent. Throws UserError where one is missing or named twice.
  CsvRecord(std::string_view header, const Place& place, std::span<const std::string_view> columns,
            std::size_t optional_from);

  // Replaces the content. Throws UserError where the number of columns is not the header's.
  void parse(std::string_view line, const Place& place);

  bool has_column(std::size_t index) const { return positions_[index] != kNone; }
  // REQUIRES: has_column(index). Without surrounding spaces and quotes.
  std::string_view text(std::size_t index) const { return cells_[positions_[index]]; }
  // The cell as a whole number in [min, max] ("512.0" is one), or UserError that says what it is instead.
  std::uint64_t count(std::size_t index, std::uint64_t min, std::uint64_t max) const;
  // The cell as a finite number, not negative.
  double number(std::size_t index) const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // Splits into cells_[0, result). Cells may be quoted; a quote inside is doubled.
  std::size_t split(std::string_view line, const Place& place);

  std::vector<std::string_view> columns_;
  std::vector<std::size_t> positions_;
  std::vector<std::string> cells_;
  std::size_t width_ = 0;
  Place place_;
};

}  // namespace tpsim::scheduler
