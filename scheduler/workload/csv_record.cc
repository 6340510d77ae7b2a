#include "scheduler/workload/csv_record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace tpsim::scheduler {

CsvRecord::CsvRecord(std::string_view header, const Place& place, std::span<const std::string_view> columns,
                     std::size_t optional_from)
    : columns_(columns.begin(), columns.end()), positions_(columns.size(), kNone), place_(place) {
  const auto require = [&](std::size_t c, bool there) {
    if (!there && c < optional_from)
      place.fail("the header {} has no column {}; the first line must name the columns", in_quotes(header),
                 columns_[c]);
  };
  for (std::size_t c = 0; c < columns_.size(); ++c)
    require(c, header.find(columns_[c]) != std::string_view::npos);
  width_ = split(header, place);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    for (std::size_t i = 0; i < width_; ++i) {
      if (cells_[i] != columns_[c]) continue;
      if (positions_[c] != kNone) place.fail("the header has the column {} twice; give it once", columns_[c]);
      positions_[c] = i;
    }
    require(c, positions_[c] != kNone);
  }
}

std::size_t CsvRecord::split(std::string_view line, const Place& place) {
  std::size_t count = 0;
  std::size_t at = 0;
  for (;;) {
    if (count == cells_.size()) cells_.emplace_back();
    std::string& cell = cells_[count++];
    cell.clear();
    while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
    if (at < line.size() && line[at] == '"') {
      ++at;
      for (;;) {
        if (at == line.size()) place.fail("a quote is not closed; the line is truncated, get the whole file");
        const char c = line[at++];
        if (c != '"') {
          cell.push_back(c);
        } else if (at < line.size() && line[at] == '"') {
          cell.push_back('"');
          ++at;
        } else {
          break;
        }
      }
      while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
      if (at < line.size() && line[at] != ',') {
        place.fail("column {} goes on after its closing quote; put a comma there", count);
      }
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      std::size_t last = end;
      while (last > at && (line[last - 1] == ' ' || line[last - 1] == '\t')) --last;
      cell.assign(line.substr(at, last - at));
      at = end;
    }
    if (at == line.size()) return count;
    ++at;  // the comma
  }
}

void CsvRecord::parse(std::string_view line, const Place& place) {
  place_ = place;
  const std::size_t count = split(line, place);
  if (count != width_) {
    place.fail("the line has {} columns; the header names {}", count, width_);
  }
}

std::uint64_t CsvRecord::count(std::size_t index, std::uint64_t min, std::uint64_t max) const {
  const std::string_view cell = text(index);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error == std::errc() && end == cell.data() + cell.size() && value >= min && value <= max) return value;
  double real = 0;
  const auto [real_end, real_error] = std::from_chars(cell.data(), cell.data() + cell.size(), real);
  if (real_error == std::errc() && real_end == cell.data() + cell.size() && real == std::floor(real) &&
      real >= static_cast<double>(min) && real <= static_cast<double>(max) && real < 0x1p53) {
    return static_cast<std::uint64_t>(real);
  }
  place_.fail("{} is {}; a whole number from {} to {} is needed", columns_[index],
              cell.empty() ? "empty" : in_quotes(cell), min, max);
}

double CsvRecord::number(std::size_t index) const {
  const std::string_view cell = text(index);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error == std::errc() && end == cell.data() + cell.size() && std::isfinite(value) && value >= 0) {
    return value + 0.0;  // no -0
  }
  place_.fail("{} is {}; a number, not negative, is needed", columns_[index],
              cell.empty() ? "empty" : in_quotes(cell));
}

}  // namespace tpsim::scheduler
