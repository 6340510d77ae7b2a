#include "launch/simulation/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proto/base/archive.h"
#include "proto/base/error.h"
#include "proto/base/hash.h"
#include "proto/base/stop_flag.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

constexpr double kDefaultEvery = 60;  // seconds
constexpr const char* kProgram = "(program)";
constexpr const char* kDeployment = "(deployment)";
constexpr const char* kRequests = "(requests)";

// Flags that change nothing in what the checkpoint holds.
constexpr std::array<std::string_view, 9> kOfNoMatter = {
    "--checkpoint", "--checkpoint-every", "--resume", "--report-dir", "--output-file",
    "--compress",   "--no-progress",      "--quiet",  "--log-level"};

std::uint64_t hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  ByteHash hash;
  std::string block(std::size_t{1} << 16, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0)
    hash.add(std::string_view(block).substr(0, static_cast<std::size_t>(file.gcount())));
  return hash.value();
}

// Files that flags name may have changed since: what came of them.
std::uint64_t hash_of_deployment(const Deployment& deployment) {
  ByteHash hash;
  for (const proto::RankReport& rank : deployment.ranks.ranks) hash.add(rank.ShortDebugString());
  return hash_with(hash.value(), deployment.configuration_hash());
}

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

RunIdentity identity_of(const ServerArgs& args, const Deployment& deployment,
                        const scheduler::StreamedWorkload& workload) {
  RunIdentity identity = args.given;
  for (const std::string_view flag : kOfNoMatter) identity.erase(std::string(flag));
  identity["--report-dir"] = args.report_dir.empty() ? "" : "(any)";
  // Generated requests are all in the flags.
  const bool from_file = !args.trace.empty() || !args.dataset_path.empty();
  identity[kRequests] = fmt::format("{} requests, hash {:016x}", workload.outline().requests,
                                    from_file ? hash_of(workload) : 0);
  identity[kDeployment] = fmt::format("{:016x}", hash_of_deployment(deployment));
  identity[kProgram] = fmt::format("{:016x}", hash_of_program());
  return identity;
}

void check_identity(const RunIdentity& was, const RunIdentity& is, const std::string& file) {
  const auto differs = [&was, &is](const std::string& name) {
    const auto before = was.find(name), now = is.find(name);
    if (before == was.end() || now == is.end()) return before != was.end() || now != is.end();
    return before->second != now->second;
  };
  if (differs(kProgram))
    throw_user_error("--resume {}: was written by another build of tpsim; go on with that one, or begin anew",
                     file);
  RunIdentity all = was;
  all.insert(is.begin(), is.end());
  const auto words = [](const RunIdentity& identity, const std::string& name) {
    const auto found = identity.find(name);
    const bool given = found != identity.end() && !found->second.empty();
    if (!given) return fmt::format("without {}", name);
    return found->second == "true" ? fmt::format("with {}", name)
                                   : fmt::format("with {} {}", name, found->second);
  };
  for (const auto& [name, any] : all) {
    if (name.starts_with("--") && differs(name))
      throw_user_error("--resume {}: is of a run {}, and this one is {}; give the flags of that run", file,
                       words(was, name), words(is, name));
  }
  if (differs(kRequests))
    throw_user_error(
        "--resume {}: is of other requests ({}; now {}); give the file that it was, or begin anew", file,
        was.at(kRequests), is.at(kRequests));
  if (differs(kDeployment))
    throw_user_error(
        "--resume {}: is of another model or GPU under the same names; restore the files that the flags "
        "name, or begin anew",
        file);
}

RunCheckpoints::RunCheckpoints(const ServerArgs& args)
    : file_(args.checkpoint_file(), !args.resume.empty()),
      every_(args.checkpoint_every.value_or(kDefaultEvery)),
      last_(std::chrono::steady_clock::now()) {
  if (args.resume.empty()) return;
  text_ = file_.text();
  state_ = checkpoint_body(text_, args.resume);
}

void RunCheckpoints::set_identity(RunIdentity identity) {
  identity_ = std::move(identity);
  if (state_.empty()) return;
  RunIdentity was;
  StateReader body(state_);
  body(was);
  check_identity(was, identity_, file_.path().string());
  state_ = body.rest();
}

void RunCheckpoints::attach(rank::DeploymentExecutor& executor, Reach& reach) {
  executor_ = &executor;
  reach_ = &reach;
}

void RunCheckpoints::read_rest(StateReader& state) {
  executor_->load(state);
  state(*reach_);
  records_->load_records(state);
  if (!state.at_end()) throw std::logic_error("a checkpoint has more state than the run");
  state_ = {};
  text_ = std::string();
}

bool RunCheckpoints::due() {
  // An event takes microseconds, not much longer than to look at the clock.
  constexpr std::uint64_t kLookEvery = 256;
  if (++asked_ % kLookEvery != 0) return false;
  return std::chrono::steady_clock::now() - last_ >= every_;
}

void RunCheckpoints::save(const std::function<void(StateWriter&)>& write_run) {
  const StopFlag::Writing writing;
  file_.begin();
  StateWriter state([this](std::string_view bytes) { file_.write(bytes); });
  state(identity_);
  write_run(state);
  executor_->save(state);
  state(*reach_);
  records_->save_records(state);
  state.flush();
  // A run that cannot be kept is still a run: the file of before stays.
  const bool written = file_.commit();
  if (!written && !warned_)
    spdlog::warn(
        "--checkpoint {}: cannot be written ({}); the run goes on, and what was written before stays",
        file_.path().string(), file_.trouble());
  warned_ = !written;
  last_ = std::chrono::steady_clock::now();
}

}  // namespace tpsim::launch
