// A trace as lines of text, with the place that messages name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/byte_source.h"

namespace tpsim::scheduler {

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
