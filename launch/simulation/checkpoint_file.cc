#include "launch/simulation/checkpoint_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "proto/base/archive.h"
#include "proto/base/error.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kMagic = "tpsim checkpoint\n";

// False: another process has it. File systems without locks let everybody.
bool lock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

}  // namespace

std::string checkpoint_head() {
  StateWriter head;
  head(kCheckpointVersion);
  return std::string(kMagic) + head.bytes();
}

std::string checkpoint_tail(const ByteHash& hash) {
  StateWriter tail;
  tail(hash.size(), hash.value());
  return tail.bytes();
}

std::string_view checkpoint_body(std::string_view text, const std::string& file) {
  if (!text.starts_with(kMagic))
    throw_user_error("--resume {}: is not a checkpoint; give a file that --checkpoint wrote", file);
  text.remove_prefix(kMagic.size());
  std::uint32_t version = 0;
  std::uint64_t size = 0, hash = 0;
  constexpr std::size_t kTail = sizeof(size) + sizeof(hash);
  if (text.size() < sizeof(version) + kTail)
    throw_user_error("--resume {}: ends too early; copy the whole file again, or begin anew", file);
  StateReader head(text.substr(0, sizeof(version)));
  head(version);
  if (version != kCheckpointVersion)
    throw_user_error("--resume {}: has version {}, and this program goes on from version {}; begin anew",
                     file, version, kCheckpointVersion);
  text.remove_prefix(sizeof(version));
  const std::string_view body = text.substr(0, text.size() - kTail);
  StateReader tail(text.substr(body.size()));
  tail(size, hash);
  ByteHash found;
  found.add(body);
  if (size != body.size() || hash != found.value())
    throw_user_error("--resume {}: is damaged; copy the whole file again, or begin anew", file);
  return body;
}

CheckpointFile::CheckpointFile(std::filesystem::path path, bool resume)
    : path_(std::move(path)), there_(resume) {
  const char* const flag = resume ? "--resume" : "--checkpoint";
  std::error_code error;
  if (resume && !std::filesystem::is_regular_file(path_, error))
    throw_user_error("--resume {}: no such file; give one that --checkpoint wrote", path_.string());
  if (!resume && std::filesystem::is_directory(path_, error))
    throw_user_error("--checkpoint {}: is a folder; give a file", path_.string());
  if (!resume && std::filesystem::exists(path_, error))
    throw_user_error("--checkpoint {0}: is there already; go on with it by --resume {0}, or remove it",
                     path_.string());
  lock_ = resume ? ::open(path_.c_str(), O_RDONLY | O_CLOEXEC)
                 : ::open(temporary().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw_user_error("{} {}: cannot be {} ({}); give a file in a folder that is yours", flag, path_.string(),
                     resume ? "read" : "written", std::strerror(errno));
  if (lock(lock_)) return;
  ::close(lock_);
  throw_user_error("{} {}: another run writes it; give each its own file", flag, path_.string());
}

CheckpointFile::~CheckpointFile() {
  if (written_ >= 0) ::close(written_);
  if (!there_) ::unlink(temporary().c_str());
  ::close(lock_);
}

std::string CheckpointFile::text() const {
  std::string text;
  std::string block(std::size_t{1} << 16, '\0');
  for (;;) {
    const ssize_t count = ::pread(lock_, block.data(), block.size(), static_cast<off_t>(text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw_user_error("--resume {}: cannot be read ({}); give a file that can", path_.string(),
                       std::strerror(errno));
    if (count == 0) return text;
    text.append(block, 0, static_cast<std::size_t>(count));
  }
}

void CheckpointFile::note_trouble() {
  if (trouble_.empty()) trouble_ = std::strerror(errno);
}

void CheckpointFile::begin() {
  trouble_.clear();
  hash_ = {};
  written_ = ::open(temporary().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (written_ < 0) note_trouble();
  put(checkpoint_head());
}

void CheckpointFile::write(std::string_view bytes) {
  hash_.add(bytes);
  put(bytes);
}

void CheckpointFile::put(std::string_view bytes) {
  while (trouble_.empty() && !bytes.empty()) {
    const ssize_t count = ::write(written_, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) note_trouble();
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

bool CheckpointFile::commit() {
  put(checkpoint_tail(hash_));
  if (trouble_.empty() && ::fsync(written_) != 0) note_trouble();
  if (trouble_.empty() && std::rename(temporary().c_str(), path_.c_str()) != 0) note_trouble();
  if (!trouble_.empty()) {
    if (written_ >= 0) {
      ::unlink(temporary().c_str());
      ::close(std::exchange(written_, -1));
    }
    return false;
  }
  ::close(lock_);
  lock_ = std::exchange(written_, -1);
  lock(lock_);
  there_ = true;
  // The new name is on the disk when its folder is.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return true;
  ::fsync(opened);
  ::close(opened);
  return true;
}

void CheckpointFile::remove() {
  ::unlink(path_.c_str());
  there_ = false;
}

}  // namespace tpsim::launch
