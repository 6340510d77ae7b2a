// A file that a command writes. A regular file appears complete or not at all: its bytes go to a file without
// a name in the same folder (or, where the file system has none of those, to a named temporary one), which
// takes the place of the old file at commit() and keeps its mode and owner. Symlinks are followed. What is no
// regular file (a device, a FIFO, /dev/stdout, /dev/fd/3) is written through as the bytes come.
//
// A name that ends in ".gz" is gzip-compressed on the way (no time, no name in it: equal text, equal bytes).
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace tpsim {

class OutputFile {
 public:
  // Whether a file without a name may hold the bytes; it leaves nothing behind even where the process is
  // killed. Named ones are for file systems that cannot, and for tests.
  enum class Temporary { kNameless, kNamed };
  // zlib's: 1 is fast, 9 is small.
  static constexpr int kFastGzip = 1;
  static constexpr int kSmallGzip = 9;

  // Opens the file for writing; a FIFO waits for its reader. `what` begins every sentence about it
  // ("--output tokens.jsonl"). Throws UserError where `path` is a folder or cannot be written.
  OutputFile(const std::filesystem::path& path, std::string what, int gzip_level = kSmallGzip,
             Temporary temporary = Temporary::kNameless);
  // Leaves what was there before, if commit() was not called.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Throws UserError where the bytes cannot be written (a full disk, a reader that has gone).
  void write(std::string_view bytes);
  // Writes what is buffered: after it, only the renaming is left to do. Nothing may be written afterwards.
  void finish();
  // finish(), then puts a regular file in place.
  void commit();

  // Whether the bytes go to standard output, where nothing else should be printed then.
  bool is_standard_output() const;

  // Removes named temporary files of this process that are not committed. Async-signal-safe.
  static void remove_temporaries() noexcept;

 private:
  class Gzip;
  class TemporaryName;

  void open_in_place(int descriptor);
  void open_temporary(Temporary temporary);
  void put(std::string_view bytes);
  void write_now(std::string_view bytes);
  void take_place();
  [[noreturn]] void fail(std::string_view doing) const;

  std::string what_;
  std::filesystem::path target_;  // no symlink; empty where written through
  struct stat old_ = {};          // of the regular file to be replaced; st_nlink is 0 where there is none
  int descriptor_ = -1;
  std::unique_ptr<TemporaryName> temporary_;
  std::unique_ptr<Gzip> gzip_;
  std::string buffer_;
  bool finished_ = false;
};

}  // namespace tpsim
