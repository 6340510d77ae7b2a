#include "rank/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

// An open file that is closed again, whatever happens.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) throw_user_error("{}: cannot be opened ({})", path, reason());
  struct stat status {};
  if (::fstat(file.number, &status) != 0) throw_user_error("{}: cannot be read ({})", path, reason());
  if (!S_ISREG(status.st_mode)) throw_user_error("{}: is not a file; a regular file is needed", path);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // nothing to map
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (data == MAP_FAILED) throw_user_error("{}: cannot be mapped into memory ({})", path, reason());
  data_ = static_cast<const char*>(data);
  size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace tpsim::rank
