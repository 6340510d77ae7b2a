// Rows of requests.csv or steps.csv that outlive the process: a file beside a checkpoint. A run that goes on
// from the checkpoint keeps the rows that were there when it was made and writes those after them again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "proto/base/hash.h"
#include "proto/base/output_file.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::launch {

class RecordSpool {
 public:
  // `resumed`: goes on with the file that is there (load()); else begins an empty one. Throws UserError
  // naming --checkpoint or --resume.
  RecordSpool(std::filesystem::path path, bool resumed);
  ~RecordSpool();
  RecordSpool(const RecordSpool&) = delete;
  RecordSpool& operator=(const RecordSpool&) = delete;

  // Throws UserError where the bytes cannot be written.
  void write(std::string_view bytes);
  // Sees that all bytes are on the disk, and says in a checkpoint which they are.
  void save(StateWriter& state);
  // Forgets what came after those. Throws UserError where they are not what they were.
  void load(StateReader& state);
  void copy_to(OutputFile& file);
  // The rows are elsewhere now.
  void remove();

 private:
  [[noreturn]] void fail(const char* doing) const;

  // Calls take(bytes) with the first `size` bytes, block by block. Returns how many there were.
  template <typename Take>
  std::uint64_t read(std::uint64_t size, const Take& take) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  ByteHash hash_;
};

}  // namespace tpsim::launch
