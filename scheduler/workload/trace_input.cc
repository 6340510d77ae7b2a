#include "scheduler/workload/trace_input.h"

#include <cstring>

namespace tpsim::scheduler {

TraceInput::TraceInput(std::unique_ptr<ByteSource> source, std::string name)
    : source_(std::move(source)), name_(std::move(name)), buffer_(std::size_t{1} << 16) {
  // A byte-order mark, as spreadsheet programs put before UTF-8 text, is not part of the first line.
  while (end_ - begin_ < 3 && fill()) {
  }
  if (end_ - begin_ >= 3 && std::memcmp(buffer_.data(), "\xef\xbb\xbf", 3) == 0) begin_ = 3;
}

bool TraceInput::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (end_ >= kMaxRecordBytes) {
      Place{name_, lines_begun_ + 1}.fail(
          "the line is longer than {} MiB; a trace has one request in each line, give the right file",
          kMaxRecordBytes >> 20);
    }
    buffer_.resize(buffer_.size() * 2);
  }
  const std::size_t count = source_->read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += count;
  return count > 0;
}

bool TraceInput::next_line(std::string_view& line) {
  std::size_t searched = 0;
  std::size_t length = 0;
  std::size_t line_end = 0;
  for (;;) {
    const std::size_t available = end_ - begin_;
    const void* found = available == searched
                            ? nullptr
                            : std::memchr(buffer_.data() + begin_ + searched, '\n', available - searched);
    if (found != nullptr) {
      length = static_cast<std::size_t>(static_cast<const char*>(found) - (buffer_.data() + begin_));
      line_end = 1;
      break;
    }
    searched = available;
    if (!fill()) {
      length = end_ - begin_;
      line_end = 0;
      break;
    }
  }
  if (length == 0 && line_end == 0) return false;
  line = {buffer_.data() + begin_, length};
  last_begin_ = begin_;
  lines_before_last_ = lines_begun_;
  line_ = lines_begun_ + 1;
  begin_ += length + line_end;
  lines_begun_ += line_end;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

bool TraceInput::next_filled_line(std::string_view& line) {
  while (next_line(line)) {
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return true;
  }
  return false;
}

void TraceInput::unread_line() {
  begin_ = last_begin_;
  lines_begun_ = lines_before_last_;
}

int TraceInput::peek_filled() {
  for (;;) {
    const int byte = get();
    if (byte == -1) return -1;
    if (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n') continue;
    --begin_;
    return byte;
  }
}

}  // namespace tpsim::scheduler
