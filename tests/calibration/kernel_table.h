// Reads the measured kernels of shared/data/kernels: gzipped CSV with a header line.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tpsim::calibration {

class KernelTable {
 public:
  // Throws std::runtime_error where the file cannot be read.
  explicit KernelTable(const std::filesystem::path& csv_gz);

  std::size_t size() const { return rows_.size(); }
  bool has(const std::string& column) const { return columns_.contains(column); }
  const std::string& text(std::size_t row, const std::string& column) const {
    return rows_[row][columns_.at(column)];
  }
  // 0 where the table has no such column.
  double number(std::size_t row, const std::string& column) const;

 private:
  std::map<std::string, std::size_t> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tpsim::calibration
