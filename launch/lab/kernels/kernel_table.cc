#include "launch/lab/kernels/kernel_table.h"

#include <cmath>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::kernels {

std::filesystem::path table_file(const std::filesystem::path& folder, const std::string& name) {
  std::error_code error;
  std::filesystem::path plain = folder / (name + ".csv");
  return std::filesystem::exists(plain, error) ? plain : folder / (name + ".csv.gz");
}

KernelTable::KernelTable(const std::filesystem::path& csv) : name_(csv.string()) {
  scheduler::TraceInput input(scheduler::decode(scheduler::open_file(csv), name_), name_);
  std::string_view line;
  if (!input.next_filled_line(line)) throw_user_error("{}: is empty; a table of kernels is needed", name_);
  const std::vector<std::string> header = split_list(line);
  for (std::size_t i = 0; i < header.size(); ++i) columns_[header[i]] = i;
  while (input.next_filled_line(line)) {
    std::vector<std::string> fields = split_list(line);
    if (fields.size() != header.size())
      input.place().fail("the line has {} columns; the header names {}", fields.size(), header.size());
    rows_.push_back(std::move(fields));
    lines_.push_back(input.place().line);
  }
}

const std::string& KernelTable::text(std::size_t row, const std::string& column) const {
  const auto found = columns_.find(column);
  if (found == columns_.end())
    throw_user_error("{}: has no column {}; a table of that kernel is needed", name_, column);
  return rows_[row][found->second];
}

double KernelTable::number(std::size_t row, const std::string& column) const {
  const auto found = columns_.find(column);
  if (found == columns_.end()) return 0;
  const std::string& text = rows_[row][found->second];
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !std::isfinite(value))
    place(row).fail("{} is {}; a number is needed", column, in_quotes(text));
  return value;
}

std::set<std::string> KernelTable::values(const std::string& column) const {
  std::set<std::string> values;
  for (std::size_t i = 0; i < size(); ++i) values.insert(text(i, column));
  return values;
}

void KernelTable::check(std::size_t row, const std::string& column, double least, double most) const {
  text(row, column);
  const double value = number(row, column);
  if (!(value >= least && value <= most))
    place(row).fail("{} is {:g}; a number from {:g} to {:g} is expected", column, value, least, most);
}

void KernelTable::fail(std::size_t row, const std::string& wrong) const { place(row).fail("{}", wrong); }

scheduler::Place KernelTable::place(std::size_t row) const { return {name_, lines_[row]}; }

}  // namespace tpsim::kernels
