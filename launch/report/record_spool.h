// Rows of requests.csv or steps.csv that outlive the process: a file beside a checkpoint. A run that goes on
// from the checkpoint keeps the rows that were there when it was made and writes those behind them again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "proto/base/output_file.h"

namespace tpsim::launch {

class RecordSpool {
 public:
  // `resumed`: goes on with the file that is there; else begins an empty one. Throws UserError naming
  // --checkpoint or --resume.
  RecordSpool(std::filesystem::path path, bool resumed);
  ~RecordSpool();
  RecordSpool(const RecordSpool&) = delete;
  RecordSpool& operator=(const RecordSpool&) = delete;

  // Throws UserError where the bytes cannot be written.
  void write(std::string_view bytes);
  // Sees that all bytes are on the disk; returns how many there are.
  std::uint64_t sync();
  // Forgets what is behind the first `size` bytes. Throws UserError where there are fewer.
  void cut(std::uint64_t size);
  void copy_to(OutputFile& file);
  // The rows are elsewhere now.
  void remove();

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tpsim::launch
