#include "scheduler/workload/trace_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::scheduler {
namespace {

// Throws UserError.
int open_descriptor(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw_user_error("{}: no such file; give the path of a trace file", path.string());
  }
  if (std::filesystem::is_directory(status)) {
    throw_user_error("{}: is a folder; give the path of one trace file", path.string());
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw_user_error("{}: cannot be opened ({}); a readable trace file is needed", path.string(),
                     std::strerror(errno));
  }
  return descriptor;
}

// Up to `capacity` bytes, from `position` on; negative: from where the descriptor is. Throws UserError.
std::size_t read_some(int descriptor, off_t position, char* out, std::size_t capacity,
                      const std::string& name) {
  ssize_t count = 0;
  do {
    count = position < 0 ? ::read(descriptor, out, capacity) : ::pread(descriptor, out, capacity, position);
  } while (count < 0 && errno == EINTR);
  if (count < 0)
    throw_user_error("{}: cannot be read ({}); a complete file on a working disk is needed", name,
                     std::strerror(errno));
  return static_cast<std::size_t>(count);
}

class FileSource : public ByteSource {
 public:
  FileSource(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}
  ~FileSource() override { ::close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  std::size_t read(char* out, std::size_t capacity) override {
    return read_some(descriptor_, -1, out, capacity, name_);
  }

 private:
  int descriptor_;
  std::string name_;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}

  std::size_t read(char* out, std::size_t capacity) override {
    const std::size_t count = std::min(capacity, bytes_.size());
    if (count > 0) std::memcpy(out, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
};

// Bytes that were already taken from `rest`, then `rest`.
class PrefixedSource : public ByteSource {
 public:
  PrefixedSource(std::string prefix, std::unique_ptr<ByteSource> rest)
      : prefix_(std::move(prefix)), rest_(std::move(rest)) {}

  std::size_t read(char* out, std::size_t capacity) override {
    if (used_ == prefix_.size()) return rest_->read(out, capacity);
    const std::size_t count = std::min(capacity, prefix_.size() - used_);
    std::memcpy(out, prefix_.data() + used_, count);
    used_ += count;
    return count;
  }

 private:
  std::string prefix_;
  std::size_t used_ = 0;
  std::unique_ptr<ByteSource> rest_;
};

// One or more gzip members, one after the other, as `cat a.gz b.gz` makes them.
class GzipSource : public ByteSource {
 public:
  GzipSource(std::unique_ptr<ByteSource> raw, std::string name)
      : raw_(std::move(raw)), name_(std::move(name)), input_(1 << 16) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(char* out, std::size_t capacity) override {
    capacity = std::min<std::size_t>(capacity, 1 << 30);  // zlib counts in 32 bits
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(capacity);
    while (stream_.avail_out == capacity) {
      if (stream_.avail_in == 0) {
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(raw_->read(input_.data(), input_.size()));
        if (stream_.avail_in == 0) {
          if (member_ended_) return 0;
          throw_user_error("{}: the gzip data ends too early; copy or compress the whole file again", name_);
        }
      }
      if (member_ended_) {
        inflateReset(&stream_);
        member_ended_ = false;
      }
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        member_ended_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        throw_user_error("{}: the gzip data is damaged ({}); copy or compress the file again", name_,
                         stream_.msg ? stream_.msg : "unknown reason");
      }
    }
    return capacity - stream_.avail_out;
  }

 private:
  std::unique_ptr<ByteSource> raw_;
  std::string name_;
  std::vector<char> input_;
  z_stream stream_{};
  bool member_ended_ = false;
};

}  // namespace

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

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  return std::make_unique<FileSource>(open_descriptor(path), path.string());
}

// From `descriptor`, whose own position does not matter.
class RereadableFile::Again : public ByteSource {
 public:
  Again(const RereadableFile& file, int descriptor) : file_(file), descriptor_(descriptor) {}

  std::size_t read(char* out, std::size_t capacity) override {
    const std::size_t count = read_some(descriptor_, position_, out, capacity, file_.name_);
    file_.check_unchanged();
    position_ += static_cast<off_t>(count);
    return count;
  }

 private:
  const RereadableFile& file_;
  int descriptor_;
  off_t position_ = 0;
};

// Puts aside what is read.
class RereadableFile::Recorder : public ByteSource {
 public:
  explicit Recorder(const RereadableFile& file) : file_(file) {}

  std::size_t read(char* out, std::size_t capacity) override {
    const std::size_t count = read_some(file_.descriptor_, -1, out, capacity, file_.name_);
    for (std::size_t done = 0; done < count;) {
      const ssize_t written = ::write(file_.aside_, out + done, count - done);
      if (written < 0 && errno != EINTR) {
        throw_user_error(
            "{}: cannot be put aside in {} ({}); set TMPDIR to a folder with room, or give a file",
            file_.name_, std::filesystem::temp_directory_path().string(), std::strerror(errno));
      }
      if (written > 0) done += static_cast<std::size_t>(written);
    }
    return count;
  }

 private:
  const RereadableFile& file_;
};

RereadableFile::RereadableFile(const std::filesystem::path& path)
    : name_(path.string()), descriptor_(open_descriptor(path)) {
  struct stat status = {};
  if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    changed_[0] = status.st_mtim.tv_sec;
    changed_[1] = status.st_mtim.tv_nsec;
    return;
  }
  std::string name = (std::filesystem::temp_directory_path() / "tpsim-trace-XXXXXX").string();
  aside_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (aside_ < 0) {
    const int reason = errno;
    ::close(descriptor_);
    throw_user_error(
        "{}: can be read once only and not be put aside in {} ({}); set TMPDIR to a folder with "
        "room, or give a file",
        name_, std::filesystem::path(name).parent_path().string(), std::strerror(reason));
  }
  ::unlink(name.c_str());
}

RereadableFile::~RereadableFile() {
  ::close(descriptor_);
  if (aside_ >= 0) ::close(aside_);
}

std::unique_ptr<ByteSource> RereadableFile::read_first() {
  if (aside_ >= 0) return std::make_unique<Recorder>(*this);
  return std::make_unique<Again>(*this, descriptor_);
}

std::unique_ptr<ByteSource> RereadableFile::read_again() const {
  return std::make_unique<Again>(*this, aside_ >= 0 ? aside_ : descriptor_);
}

void RereadableFile::check_unchanged() const {
  if (aside_ >= 0) return;
  struct stat status = {};
  if (::fstat(descriptor_, &status) == 0 && status.st_size == size_ && status.st_mtim.tv_sec == changed_[0] &&
      status.st_mtim.tv_nsec == changed_[1])
    return;
  throw_user_error("{}: has changed while it was read; leave the file as it is until the run has ended",
                   name_);
}

std::unique_ptr<ByteSource> open_memory(std::string_view bytes) {
  return std::make_unique<MemorySource>(bytes);
}

std::unique_ptr<ByteSource> decode(std::unique_ptr<ByteSource> raw, std::string name) {
  std::string prefix;
  char byte = 0;
  while (prefix.size() < 2 && raw->read(&byte, 1) == 1) prefix.push_back(byte);
  const bool gzip = prefix == "\x1f\x8b";
  auto whole = std::make_unique<PrefixedSource>(std::move(prefix), std::move(raw));
  if (!gzip) return whole;
  return std::make_unique<GzipSource>(std::move(whole), std::move(name));
}

}  // namespace tpsim::scheduler
