#include "scheduler/workload/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::scheduler {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class FileSource : public ByteSource {
 public:
  FileSource(std::unique_ptr<std::FILE, FileCloser> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  std::size_t read(char* out, std::size_t capacity) override {
    const std::size_t count = std::fread(out, 1, capacity, file_.get());
    if (count == 0 && std::ferror(file_.get())) {
      throw_user_error("{}: cannot be read ({}); a complete file on a working disk is needed", name_,
                       std::strerror(errno));
    }
    return count;
  }

 private:
  std::unique_ptr<std::FILE, FileCloser> file_;
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

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw_user_error("{}: no such file; give the path of a trace file", path.string());
  }
  if (std::filesystem::is_directory(status)) {
    throw_user_error("{}: is a folder; give the path of one trace file", path.string());
  }
  std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    throw_user_error("{}: cannot be opened ({}); a readable trace file is needed", path.string(),
                     std::strerror(errno));
  }
  return std::make_unique<FileSource>(std::move(file), path.string());
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
