#include "launch/report/record_spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::launch {

RecordSpool::RecordSpool(std::filesystem::path path, bool resumed) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | (resumed ? 0 : O_CREAT | O_TRUNC), 0666);
  if (descriptor_ < 0 && resumed && errno == ENOENT)
    throw_user_error(
        "--resume: {} is missing, which holds the rows that were written; keep it beside the checkpoint",
        path_.string());
  struct stat status = {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) fail("opened");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

RecordSpool::~RecordSpool() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RecordSpool::fail(const char* doing) const {
  throw_user_error("--checkpoint: {} cannot be {} ({}); give a file in a folder with room", path_.string(),
                   doing, std::strerror(errno));
}

void RecordSpool::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("written");
    size_ += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::uint64_t RecordSpool::sync() {
  if (::fdatasync(descriptor_) != 0) fail("written");
  return size_;
}

void RecordSpool::cut(std::uint64_t size) {
  if (size > size_)
    throw_user_error(
        "--resume: {} has {} bytes and the checkpoint knows of {}; it is another run's, or damaged",
        path_.string(), size_, size);
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail("written");
  size_ = size;
}

void RecordSpool::copy_to(OutputFile& file) {
  std::string block(std::size_t{1} << 20, '\0');
  for (std::uint64_t at = 0; at < size_;) {
    const ssize_t count = ::pread(descriptor_, block.data(), block.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("read");
    file.write(std::string_view(block).substr(0, static_cast<std::size_t>(count)));
    at += static_cast<std::uint64_t>(count);
  }
}

void RecordSpool::remove() { ::unlink(path_.c_str()); }

}  // namespace tpsim::launch
