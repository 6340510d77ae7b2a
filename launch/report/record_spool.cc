#include "launch/report/record_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "proto/base/archive.h"
#include "proto/base/error.h"

namespace tpsim::launch {

RecordSpool::RecordSpool(std::filesystem::path path, bool resumed) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | (resumed ? 0 : O_CREAT | O_TRUNC), 0666);
  if (descriptor_ < 0 && resumed && errno == ENOENT)
    throw_user_error(
        "--resume: {} is missing, which has the rows that were written; keep it beside the checkpoint",
        path_.string());
  if (descriptor_ < 0) fail("opened");
}

RecordSpool::~RecordSpool() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RecordSpool::fail(const char* doing) const {
  throw_user_error(
      "--checkpoint: {} cannot be {} ({}); make room, and --resume the checkpoint if there is one",
      path_.string(), doing, std::strerror(errno));
}

void RecordSpool::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(hash_.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("written");
    hash_.add(bytes.substr(0, static_cast<std::size_t>(count)));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

template <typename Take>
std::uint64_t RecordSpool::read(std::uint64_t size, const Take& take) const {
  std::string block(std::size_t{1} << 18, '\0');
  std::uint64_t at = 0;
  while (at < size) {
    const std::size_t wanted = std::min<std::uint64_t>(block.size(), size - at);
    const ssize_t count = ::pread(descriptor_, block.data(), wanted, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read");
    if (count == 0) break;
    take(std::string_view(block).substr(0, static_cast<std::size_t>(count)));
    at += static_cast<std::uint64_t>(count);
  }
  return at;
}

void RecordSpool::save(StateWriter& state) {
  if (::fdatasync(descriptor_) != 0) fail("written");
  state(hash_.size(), hash_.value());
}

void RecordSpool::load(StateReader& state) {
  std::uint64_t size = 0, hash = 0;
  state(size, hash);
  read(size, [this](std::string_view bytes) { hash_.add(bytes); });
  if (hash_.size() != size || hash_.value() != hash)
    throw_user_error("--resume: {} is damaged, or another run's; keep what lies beside a checkpoint as it is",
                     path_.string());
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail("written");
}

void RecordSpool::copy_to(OutputFile& file) {
  if (read(hash_.size(), [&file](std::string_view bytes) { file.write(bytes); }) == hash_.size()) return;
  errno = EIO;
  fail("read");
}

void RecordSpool::remove() { ::unlink(path_.c_str()); }

}  // namespace tpsim::launch
