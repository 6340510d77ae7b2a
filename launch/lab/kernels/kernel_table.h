// Reads tables of measured kernels (shared/data/kernels): CSV with a header line, gzipped or not.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "scheduler/workload/trace_input.h"

namespace tpsim::kernels {

// FOLDER/NAME.csv where that is there, else FOLDER/NAME.csv.gz.
std::filesystem::path table_file(const std::filesystem::path& folder, const std::string& name);

class KernelTable {
 public:
  // Throws UserError "FILE:LINE: …" for a file that cannot be read, or has lines of another width than its
  // first.
  explicit KernelTable(const std::filesystem::path& csv);

  std::size_t size() const { return rows_.size(); }
  bool has(const std::string& column) const { return columns_.contains(column); }
  // Throws UserError where the table has no such column.
  const std::string& text(std::size_t row, const std::string& column) const;
  // 0 where the table has no such column, or nothing in it. Throws UserError for what is no number.
  double number(std::size_t row, const std::string& column) const;
  std::uint32_t count(std::size_t row, const std::string& column) const {
    return static_cast<std::uint32_t>(number(row, column));
  }
  // The values of a column, each once. Throws UserError where the table has no such column.
  std::set<std::string> values(const std::string& column) const;
  // Throws UserError for a number beyond these, or no such column.
  void check(std::size_t row, const std::string& column, double least, double most) const;

  // Throws UserError "FILE:LINE: WRONG".
  [[noreturn]] void fail(std::size_t row, const std::string& wrong) const;

 private:
  scheduler::Place place(std::size_t row) const;

  std::string name_;
  std::map<std::string, std::size_t> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::uint64_t> lines_;  // of the file, that the rows stand on
};

// How far predictions of single rows are off.
struct RelativeErrors {
  double median = 0;
  double p90 = 0;
  std::size_t rows = 0;
};

// Of predictions `ratio` times too small (measured / predicted); 0 of none.
inline RelativeErrors relative_errors(std::span<const double> ratios) {
  std::vector<double> errors;
  errors.reserve(ratios.size());
  for (const double ratio : ratios) errors.push_back(std::abs(1 / ratio - 1));
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  return {errors[errors.size() / 2], errors[errors.size() * 9 / 10], errors.size()};
}

}  // namespace tpsim::kernels
