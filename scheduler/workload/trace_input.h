// Where the bytes of a trace come from (a file or memory, plain or gzip-compressed), and the trace as lines
// of text, with the place that messages name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::scheduler {

// How a trace file is read.
struct ReadOptions {
  std::string format = "auto";  // "auto" or one of trace_format_names()
  std::size_t num_prompts = 0;  // keep the first so many requests; 0 = all. The rest is not looked at.
  bool sort = false;            // put requests in order of arrival; false: refuse a file that is not
  // Of "sharegpt", a seed: as SGLang's benchmark samples it (sample_sharegpt_requests of
  // benchmark/datasets/sharegpt.py), shuffled, without requests of fewer than two prompt or output tokens.
  std::optional<std::uint32_t> draw = {};
  // Tokens of a text, where a trace has texts; null: four for three words, and a note says so.
  std::function<std::uint64_t(std::string_view)> count_tokens = {};
};

// The names that ReadOptions::format accepts besides "auto".
std::vector<std::string> trace_format_names();

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

// No record of a trace is longer; a longer one is not a trace, and must not fill the memory.
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

// A place in a trace. `name` points into the TraceInput that gave it.
struct Place {
  std::string_view name;
  std::uint64_t line = 0;  // from 1

  // Throws UserError "NAME:LINE: sentence".
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError(fmt::format("{}:{}: {}", name, line, fmt::format(format, std::forward<Args>(args)...)));
  }
};

class TraceInput {
 public:
  TraceInput(std::unique_ptr<ByteSource> source, std::string name);

  const std::string& name() const { return name_; }

  // The next line without its end (\n or \r\n); false at the end. The view lives until the next call. A last
  // line without an end is a line. Throws UserError for a line longer than kMaxRecordBytes.
  bool next_line(std::string_view& line);
  // As next_line, but goes on to the next line that is not blank.
  bool next_filled_line(std::string_view& line);
  // The next next_line() returns the same line again. REQUIRES: the last call was a successful next_line()
  // or next_filled_line().
  void unread_line();

  // One byte, or -1 at the end. next_line() continues after it.
  int get() {
    if (begin_ == end_ && !fill()) return -1;
    const auto byte = static_cast<unsigned char>(buffer_[begin_++]);
    if (byte == '\n') ++lines_begun_;
    return byte;
  }
  // The next byte that is not white space, not consumed, or -1. White space before it is consumed.
  int peek_filled();

  // Line of the last next_line(), or of the byte that get() would return next.
  Place place() const { return {name_, line_}; }
  Place place_of_next_byte() const { return {name_, lines_begun_ + 1}; }

 private:
  // Reads more bytes after end_, keeping [begin_, end_); false at the end of the source.
  bool fill();

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;          // first unread byte
  std::size_t end_ = 0;            // end of the bytes read so far
  std::size_t last_begin_ = 0;     // start of the last line, for unread_line()
  std::uint64_t lines_begun_ = 0;  // line ends before begin_
  std::uint64_t lines_before_last_ = 0;
  std::uint64_t line_ = 0;
};

}  // namespace tpsim::scheduler
