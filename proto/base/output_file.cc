#include "proto/base/output_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proto/base/error.h"

namespace tpsim {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

// Names of temporary files, where a signal handler can read them.
struct Registered {
  std::atomic<bool> taken = false;
  std::atomic<bool> exists = false;
  std::array<char, PATH_MAX> path = {};
};
std::array<Registered, 16> registered;

// Where writing to a path really leads.
struct Destination {
  std::optional<int> descriptor;  // one of this process: /dev/stdout, /dev/fd/3
  fs::path path;                  // else; no symlink
};

Destination destination_of(fs::path path) {
  constexpr int kMostLinks = 40;  // as Linux
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  for (int links = 0; links < kMostLinks; ++links) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (!own.empty() && fs::canonical(folder, error) == own) {
      const std::string name = path.filename().string();
      int number = -1;
      const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), number);
      if (bad == std::errc() && end == name.data() + name.size()) return {number, {}};
    }
    if (!fs::is_symlink(path, error)) return {std::nullopt, path};
    const fs::path link = fs::read_symlink(path, error);
    if (error) return {std::nullopt, path};
    path = link.is_absolute() ? link : folder / link;
  }
  return {std::nullopt, path};  // opening it says that there are too many
}

bool names_descriptors() { return access("/proc/self/fd", X_OK) == 0; }

}  // namespace

// A name beside the target, known to remove_temporaries() while a file of that name exists.
class OutputFile::TemporaryName {
 public:
  explicit TemporaryName(const fs::path& target) {
    static std::atomic<unsigned> made = 0;
    path_ = fmt::format("{}.tmp.{}.{}", target.string(), getpid(), made++);
    if (path_.size() >= PATH_MAX) return;  // opening it will say so
    for (Registered& entry : registered) {
      if (entry.taken.exchange(true)) continue;
      std::memcpy(entry.path.data(), path_.c_str(), path_.size() + 1);
      entry.exists = true;
      entry_ = &entry;
      return;
    }
  }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  ~TemporaryName() {
    if (!renamed_) unlink(path_.c_str());
    if (entry_ == nullptr) return;
    entry_->exists = false;
    entry_->taken = false;
  }

  const char* path() const { return path_.c_str(); }
  bool rename_to(const fs::path& target) {
    renamed_ = std::rename(path_.c_str(), target.c_str()) == 0;
    return renamed_;
  }

 private:
  std::string path_;
  Registered* entry_ = nullptr;
  bool renamed_ = false;
};

class OutputFile::Gzip {
 public:
  explicit Gzip(int level) {
    constexpr int kGzip = 16;  // the header that zlib writes has no time and no name
    constexpr int kMostMemory = 9;
    if (deflateInit2(&stream_, level, Z_DEFLATED, MAX_WBITS + kGzip, kMostMemory, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() { deflateEnd(&stream_); }

  // Hands the compressed form of `bytes` to `put`, in blocks; with `end`, all of it.
  template <typename Put>
  void compress(std::string_view bytes, bool end, Put put) {
    constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // zlib counts in 32 bits
    do {
      const std::string_view part = bytes.substr(0, kMostAtOnce);
      bytes.remove_prefix(part.size());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));  // zlib only reads it
      stream_.avail_in = static_cast<uInt>(part.size());
      const int flush = end && bytes.empty() ? Z_FINISH : Z_NO_FLUSH;
      int status = Z_OK;
      do {
        stream_.next_out = reinterpret_cast<Bytef*>(block_.data());
        stream_.avail_out = static_cast<uInt>(block_.size());
        status = deflate(&stream_, flush);
        put(std::string_view(block_.data(), block_.size() - stream_.avail_out));
      } while (flush == Z_FINISH ? status != Z_STREAM_END : stream_.avail_out == 0);
    } while (!bytes.empty());
  }

 private:
  z_stream stream_{};
  std::array<char, kBufferBytes> block_;
};

OutputFile::OutputFile(const fs::path& path, std::string what, int gzip_level, Temporary temporary)
    : what_(std::move(what)) {
  const Destination destination = destination_of(path);
  if (path.extension() == ".gz") gzip_ = std::make_unique<Gzip>(gzip_level);
  if (destination.descriptor) {
    open_in_place(fcntl(*destination.descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    return;
  }
  if (stat(destination.path.c_str(), &old_) != 0) {
    if (errno != ENOENT || destination.path.filename().empty()) fail("written");
    old_ = {};
  } else if (S_ISDIR(old_.st_mode)) {
    throw_user_error("{}: {} is a folder, a file is to be written there", what_, destination.path.string());
  } else if (!S_ISREG(old_.st_mode)) {
    open_in_place(open(destination.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    return;
  } else if (access(destination.path.c_str(), W_OK) != 0) {
    fail("written");
  }
  target_ = destination.path;
  open_temporary(temporary);
}

void OutputFile::open_in_place(int descriptor) {
  descriptor_ = descriptor;
  if (descriptor_ < 0) fail("written");
}

void OutputFile::open_temporary(Temporary temporary) {
  constexpr mode_t kMode = 0666;  // less the umask
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (temporary == Temporary::kNameless && names_descriptors()) {
    descriptor_ = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
    // Other errors are those of the folder itself. A folder is what a kernel or file system without
    // O_TMPFILE takes it for.
    if (descriptor_ < 0 && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) fail("written");
  }
  if (descriptor_ < 0) {
    temporary_ = std::make_unique<TemporaryName>(target_);
    descriptor_ = open(temporary_->path(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
    if (descriptor_ < 0) fail("written");
  }
  if (old_.st_nlink == 0) return;
  // Who may not give a file away keeps it, as with a copy.
  const bool same_owner = fchown(descriptor_, old_.st_uid, old_.st_gid) == 0;
  fchmod(descriptor_, old_.st_mode & (same_owner ? 07777 : 0777));
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void OutputFile::fail(std::string_view doing) const {
  throw_user_error("{}: cannot be {}: {}", what_, doing, std::strerror(errno));
}

void OutputFile::write(std::string_view bytes) {
  if (finished_) throw std::logic_error("OutputFile: written to after its end");
  if (gzip_ == nullptr) {
    put(bytes);
  } else {
    gzip_->compress(bytes, /*end=*/false, [this](std::string_view block) { put(block); });
  }
}

void OutputFile::put(std::string_view bytes) {
  if (buffer_.size() + bytes.size() < kBufferBytes) {
    buffer_ += bytes;
    return;
  }
  write_now(buffer_);
  buffer_.clear();
  write_now(bytes);
}

void OutputFile::write_now(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("written");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

bool OutputFile::is_standard_output() const {
  struct stat mine = {};
  struct stat standard = {};
  return target_.empty() && fstat(descriptor_, &mine) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
         mine.st_dev == standard.st_dev && mine.st_ino == standard.st_ino;
}

void OutputFile::finish() {
  if (finished_) return;
  finished_ = true;
  if (gzip_ != nullptr) gzip_->compress({}, /*end=*/true, [this](std::string_view block) { put(block); });
  write_now(buffer_);
  // What is delayed until a file is closed (quotas, network file systems) shows here.
  const int copy = dup(descriptor_);
  if (copy < 0 || close(copy) != 0) fail("written");
}

void OutputFile::commit() {
  finish();
  if (!target_.empty()) take_place();
  close(std::exchange(descriptor_, -1));
}

void OutputFile::take_place() {
  if (temporary_ == nullptr) {
    const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
    const auto link = [&](const char* path) {
      return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
    };
    // A link cannot replace a file: that takes a name, for a moment.
    if (old_.st_nlink == 0 && link(target_.c_str())) return;
    temporary_ = std::make_unique<TemporaryName>(target_);
    if (!link(temporary_->path())) fail("put in place");
  }
  if (!temporary_->rename_to(target_)) fail("put in place");
}

void OutputFile::remove_temporaries() noexcept {
  for (Registered& entry : registered) {
    if (entry.exists) unlink(entry.path.data());
  }
}

}  // namespace tpsim
