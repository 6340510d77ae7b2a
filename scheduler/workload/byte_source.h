// Where the bytes of a trace come from: a file or memory, plain or gzip-compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace tpsim::scheduler {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills up to `capacity` bytes and returns how many; 0 only at the end. REQUIRES: capacity > 0.
  // Throws UserError where the bytes cannot be had.
  virtual std::size_t read(char* out, std::size_t capacity) = 0;
};

// Throws UserError for a missing or unreadable file and for a folder.
std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);

// A file that is read several times. What can be read only once (a pipe, standard input) is put aside on the
// first reading, in a file without a name in $TMPDIR (default /tmp).
class RereadableFile {
 public:
  // Throws UserError as open_file() does.
  explicit RereadableFile(const std::filesystem::path& path);
  ~RereadableFile();
  RereadableFile(const RereadableFile&) = delete;
  RereadableFile& operator=(const RereadableFile&) = delete;

  // The bytes for the first time. Call it once. The file must outlive all that it gives.
  std::unique_ptr<ByteSource> read_first();
  // The bytes again, as far as the first reading went where they were put aside. May be called by several
  // threads at once. REQUIRES: the first reading has ended. Its read() throws UserError where the file has
  // changed since it was opened.
  std::unique_ptr<ByteSource> read_again() const;

 private:
  class Recorder;
  class Again;

  void check_unchanged() const;

  std::string name_;
  int descriptor_ = -1;
  int aside_ = -1;                // what was put aside; -1: the file is read again itself
  std::int64_t size_ = 0;         // of a regular file when it was opened, bytes
  std::int64_t changed_[2] = {};  // when it was changed last before, seconds and nanoseconds
};

// REQUIRES: `bytes` outlives the source.
std::unique_ptr<ByteSource> open_memory(std::string_view bytes);

// Decompresses `raw` if it starts as gzip does, and passes it through if not. Damaged or truncated gzip data
// throws UserError that starts with `name`, when the damage is reached.
std::unique_ptr<ByteSource> decode(std::unique_ptr<ByteSource> raw, std::string name);

}  // namespace tpsim::scheduler
