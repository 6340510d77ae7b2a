#include "launch/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/hash.h"
#include "proto/versions.h"

namespace tpsim::launch {
namespace {

constexpr std::string_view kMagic = "tpsim checkpoint\n";
constexpr double kDefaultEvery = 60;
// Entries of an identity that are no options.
constexpr const char* kProgram = "(program)";
constexpr const char* kRequests = "(requests)";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// Why a checkpoint of `was` is none of `is`.
[[noreturn]] void refuse(const std::string& file, const RunIdentity& was, const RunIdentity& is) {
  const auto value = [](const RunIdentity& identity, const std::string& name) {
    const auto found = identity.find(name);
    return found == identity.end() || found->second.empty() ? std::string("not given") : found->second;
  };
  RunIdentity all = was;
  all.insert(is.begin(), is.end());
  for (const auto& [name, any] : all) {
    const std::string before = value(was, name), now = value(is, name);
    if (before == now) continue;
    if (name == kProgram)
      throw_user_error(
          "--resume {}: was written by another build of tpsim; go on with that one, or begin anew", file);
    if (name == kRequests)
      throw_user_error("--resume {}: is of other requests ({}, now {}); give the trace of that run", file,
                       before, now);
    throw_user_error("--resume {}: is of a run with {} {}, and now it is {}; give the flags of that run",
                     file, flag_of(name), before, now);
  }
  throw std::logic_error("equal identities");
}

}  // namespace

RunIdentity identity_of(const ServerArgs& args, const Deployment& deployment,
                        const scheduler::WorkloadOutline& workload) {
  RunIdentity identity(deployment.header.server_args().begin(), deployment.header.server_args().end());
  identity["session_mode"] = args.session_mode ? std::string(to_string(*args.session_mode)) : "";
  identity["steps"] = std::to_string(args.steps_every);
  identity["report_dir"] = args.report_dir.empty() ? "" : "given";
  identity["check_invariants"] = args.check_invariants ? "true" : "";
  identity[kRequests] = fmt::format("{} requests, hash {:016x}", workload.requests, workload.fingerprint);
  identity[kProgram] = fmt::format("{:016x}", hash_of_bytes(contents("/proc/self/exe")));
  return identity;
}

std::string checkpoint_text(const RunIdentity& identity, std::string_view state) {
  StateWriter body;
  body(identity, std::string(state));
  StateWriter head;
  head(kCheckpointVersion, static_cast<std::uint64_t>(body.bytes().size()), hash_of_bytes(body.bytes()));
  return std::string(kMagic) + head.bytes() + body.bytes();
}

std::string read_checkpoint(std::string_view text, const std::string& file, const RunIdentity& identity) {
  if (!text.starts_with(kMagic))
    throw_user_error("--resume {}: is no checkpoint; give a file that --checkpoint wrote", file);
  text.remove_prefix(kMagic.size());
  std::uint32_t version = 0;
  std::uint64_t size = 0, hash = 0;
  constexpr std::size_t kHead = sizeof(version) + sizeof(size) + sizeof(hash);
  if (text.size() < kHead) throw_user_error("--resume {}: ends too early; copy the whole file again", file);
  StateReader head(text.substr(0, kHead));
  head(version, size, hash);
  text.remove_prefix(kHead);
  if (version != kCheckpointVersion)
    throw_user_error("--resume {}: has version {}, this program goes on from version {}", file, version,
                     kCheckpointVersion);
  if (text.size() != size || hash_of_bytes(text) != hash)
    throw_user_error("--resume {}: is damaged; copy the whole file again, or begin anew", file);
  RunIdentity was;
  std::string state;
  StateReader body(text);
  body(was, state);
  if (was != identity) refuse(file, was, identity);
  return state;
}

void check_new_checkpoint(const ServerArgs& args) {
  std::error_code error;
  if (args.resume.empty() && !args.checkpoint.empty() && std::filesystem::exists(args.checkpoint, error))
    throw_user_error("--checkpoint {0}: is there already; go on with it by --resume {0}, or remove it",
                     args.checkpoint);
}

RunCheckpoints::RunCheckpoints(const ServerArgs& args, RunIdentity identity, ReportOutput& records)
    : file_(args.checkpoint_file()),
      identity_(std::move(identity)),
      every_(args.checkpoint_every.value_or(kDefaultEvery)),
      records_(records),
      last_(std::chrono::steady_clock::now()) {
  if (args.resume.empty()) return;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file_, error))
    throw_user_error("--resume {}: no such file; give a file that --checkpoint wrote", args.resume);
  resumed_ = read_checkpoint(contents(file_), args.resume, identity_);
}

void RunCheckpoints::attach(rank::DeploymentExecutor& executor, Reach& reach) {
  executor_ = &executor;
  reach_ = &reach;
  StateWriter nowhere;
  if (!executor.save(nowhere))
    throw_user_error(
        "--checkpoint {}: keeps runs of one process; leave out mpirun, one process stands in for all ranks",
        file_.string());
}

void RunCheckpoints::read_rest(StateReader& state) {
  executor_->load(state);
  state(*reach_);
  records_.load_records(state);
  if (!state.at_end()) throw std::logic_error("a checkpoint has more state than the run");
  resumed_ = {};
}

bool RunCheckpoints::due() {
  // An event takes microseconds, as long as to look at the clock.
  constexpr std::uint64_t kLookEvery = 256;
  if (++asked_ % kLookEvery != 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < every_) return false;
  last_ = now;
  return true;
}

void RunCheckpoints::save(StateWriter& state) {
  executor_->save(state);
  state(*reach_);
  records_.save_records(state);
  const std::string text = checkpoint_text(identity_, state.bytes());
  const std::filesystem::path fresh = file_.string() + ".tmp";
  const auto fail = [this] {
    throw_user_error("--checkpoint {}: cannot be written ({}); give a file in a folder with room",
                     file_.string(), std::strerror(errno));
  };
  const int descriptor = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) fail();
  std::string_view left = text;
  bool written = true;
  while (written && !left.empty()) {
    const ssize_t count = ::write(descriptor, left.data(), left.size());
    written = count > 0 || (count < 0 && errno == EINTR);
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
  }
  written = written && ::fsync(descriptor) == 0;
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  if (!written || std::rename(fresh.c_str(), file_.c_str()) != 0) {
    const int why = errno;
    ::unlink(fresh.c_str());
    errno = why;
    fail();
  }
  // The new name is on the disk when its folder is.
  const std::filesystem::path folder = file_.has_parent_path() ? file_.parent_path() : ".";
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return;
  ::fsync(opened);
  ::close(opened);
}

void RunCheckpoints::remove() const { ::unlink(file_.c_str()); }

}  // namespace tpsim::launch
