// The rows of a CSV of measurements, whose cells are asked for by the names of their columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/workload/csv_record.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

class CsvRows {
 public:
  // Reads the header. Columns are words of literals with blanks between them; those of `optional` may be
  // absent. Throws UserError where one of the others is, as all below do for a cell that is not what is asked
  // for.
  CsvRows(scheduler::TraceInput& input, std::string_view needed, std::string_view optional = {})
      : input_(input),
        columns_(words({needed, optional})),
        record_{next_line(), input.place(), columns_, words({needed}).size()} {}  // in this order

  // To the next filled line; false at the end.
  bool next() {
    const std::string_view line = next_line();
    if (!line.empty()) record_.parse(line, place());
    return !line.empty();
  }
  scheduler::Place place() const { return input_.place(); }

  // "" where the column is absent.
  std::string text(std::string_view column) const {
    const std::size_t index = index_of(column);
    return record_.has_column(index) ? std::string(record_.text(index)) : std::string();
  }
  // A whole number in [least, most].
  std::uint64_t count(std::string_view column, std::uint64_t least, std::uint64_t most) const {
    return record_.count(index_of(column), least, most);
  }
  std::uint32_t small_count(std::string_view column, std::uint32_t least, std::uint32_t most) const {
    return static_cast<std::uint32_t>(count(column, least, most));
  }
  // The same; 1 where the column is absent or the cell empty.
  std::uint32_t gpus(std::string_view column) const {
    return text(column).empty() ? 1U : small_count(column, 1, 1U << 20);
  }
  // A finite number, not negative.
  double number(std::string_view column) const { return record_.number(index_of(column)); }
  // A measured time, which is above 0.
  double time(std::string_view column) const {
    const double value = number(column);
    if (value <= 0) place().fail("{} is 0; a measured time is longer", column);
    return value;
  }
  // Nothing where the column is absent or the cell empty.
  std::optional<double> optional_time(std::string_view column) const {
    return text(column).empty() ? std::nullopt : std::optional(time(column));
  }

 private:
  static std::vector<std::string_view> words(std::initializer_list<std::string_view> texts) {
    std::vector<std::string_view> words;
    for (std::string_view text : texts) {
      while (!text.empty()) {
        words.push_back(text.substr(0, text.find(' ')));
        text.remove_prefix(std::min(words.back().size() + 1, text.size()));
      }
    }
    return words;
  }
  std::string_view next_line() {
    std::string_view line;
    return input_.next_filled_line(line) ? line : std::string_view();
  }
  std::size_t index_of(std::string_view column) const {
    return static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), column) - columns_.begin());
  }

  scheduler::TraceInput& input_;
  std::vector<std::string_view> columns_;
  scheduler::CsvRecord record_;
};

}  // namespace tpsim::launch
