#include "launch/simulation/checkpoint.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/hash.h"
#include "proto/base/stop_flag.h"

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

}  // namespace

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
