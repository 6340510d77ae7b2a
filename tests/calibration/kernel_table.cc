#include "tests/calibration/kernel_table.h"

#include <zlib.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace tpsim::calibration {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  std::string field;
  while (std::getline(stream, field, ',')) fields.push_back(field);
  return fields;
}

}  // namespace

KernelTable::KernelTable(const std::filesystem::path& csv_gz) {
  gzFile file = gzopen(csv_gz.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot read " + csv_gz.string());
  std::array<char, 4096> buffer{};
  bool header = true;
  while (gzgets(file, buffer.data(), buffer.size()) != nullptr) {
    std::string line(buffer.data());
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    std::vector<std::string> fields = split(line);
    if (header) {
      for (std::size_t i = 0; i < fields.size(); ++i) columns_[fields[i]] = i;
      header = false;
    } else if (fields.size() == columns_.size()) {
      rows_.push_back(std::move(fields));
    }
  }
  gzclose(file);
}

double KernelTable::number(std::size_t row, const std::string& column) const {
  const auto found = columns_.find(column);
  return found == columns_.end() ? 0 : std::strtod(rows_[row][found->second].c_str(), nullptr);
}

}  // namespace tpsim::calibration
