#include "rank/parallel/mpi_session.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::rank {

namespace {

// "1, 2, 4 or 8"
std::string divisors(std::uint32_t number) {
  std::string text;
  for (std::uint32_t d = 1; d <= number; ++d) {
    if (number % d != 0) continue;
    if (!text.empty()) text += d == number ? " or " : ", ";
    text += std::to_string(d);
  }
  return text;
}

// Process ids of the processes of `comm` that run on this host. Collective.
std::vector<pid_t> pids_on_this_host(MPI_Comm comm, std::uint32_t num_processes) {
  struct Place {
    std::array<char, MPI_MAX_PROCESSOR_NAME> host;
    pid_t pid;
  };
  Place mine = {};
  int length = 0;
  MPI_Get_processor_name(mine.host.data(), &length);
  mine.pid = getpid();
  std::vector<Place> places(num_processes);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, places.data(), sizeof mine, MPI_BYTE, comm);
  std::vector<pid_t> pids;
  pids.reserve(places.size());
  for (const Place& place : places) {
    pids.push_back(std::strcmp(place.host.data(), mine.host.data()) == 0 ? place.pid : 0);
  }
  return pids;
}

}  // namespace

bool started_by_launcher() {
  // Open MPI's mpirun; MPICH's and Slurm's PMI; PMIx.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

bool ProcessGroup::is_dead(std::uint32_t of_process) const {
  const pid_t pid = pids[of_process];
  return pid != 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

std::string ProcessGroup::name_of(std::uint32_t of_process) const {
  const std::uint32_t first = first_rank(of_process);
  if (ranks_per_process() == 1) return fmt::format("rank {} (process {})", first, of_process);
  return fmt::format("ranks {}-{} (process {})", first, first + ranks_per_process() - 1, of_process);
}

MpiSession::MpiSession() {
  if (!started_by_launcher()) return;
  // Processes may well outnumber cores: waiting inside MPI (start, end) must let others run. Messages are
  // small, and copying through process_vm_readv is forbidden in many containers. The user's own settings win.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  MPI_Init(nullptr, nullptr);
  active_ = true;
  int process = 0;
  int num_processes = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &num_processes);
  process_ = static_cast<std::uint32_t>(process);
  num_processes_ = static_cast<std::uint32_t>(num_processes);
  // Nobody outlives a launcher that was killed: process 0 reports first, the others have nothing to say.
  prctl(PR_SET_PDEATHSIG, process_ == 0 ? SIGTERM : SIGKILL);
}

MpiSession::~MpiSession() {
  if (!active_) return;
  if (lost_) abort(lost_status_);
  MPI_Finalize();
}

ProcessGroup MpiSession::process_group(std::uint32_t num_ranks, std::uint32_t num_deployments,
                                       std::uint32_t pp_size) {
  if (num_deployments == 0 || num_processes_ % num_deployments != 0 ||
      num_processes_ / num_deployments > num_ranks || num_ranks % (num_processes_ / num_deployments) != 0) {
    const std::string of_each = num_deployments == 1 ? "" : fmt::format(" for each of {}", num_deployments);
    const std::string stages = pp_size == 1 ? "" : fmt::format(" with --pp-size {}", pp_size);
    throw_user_error("mpirun started {} processes, but --tp {}{} runs with mpirun -n {}{}", num_processes_,
                     num_ranks / pp_size, stages, divisors(num_ranks), of_each);
  }
  ProcessGroup group;
  group.tp_size = num_ranks;
  group.num_processes = num_processes_ / num_deployments;
  group.deployment = process_ / group.num_processes;
  group.process = process_ % group.num_processes;
  if (active_) {
    MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(group.deployment), static_cast<int>(group.process),
                   &group.comm);
    group.pids = pids_on_this_host(group.comm, group.num_processes);
    const std::vector<pid_t> all = pids_on_this_host(MPI_COMM_WORLD, num_processes_);
    const auto here = std::count_if(all.begin(), all.end(), [](pid_t pid) { return pid != 0; });
    group.job_on_host = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(here));
  }
  return group;
}

ProcessGroup MpiSession::leaders(const ProcessGroup& group) const {
  ProcessGroup leaders;
  leaders.num_processes = leaders.tp_size = num_processes_ / group.num_processes;
  leaders.process = group.deployment;
  leaders.job_on_host = group.job_on_host;
  if (!active_) return leaders;
  MPI_Comm_split(MPI_COMM_WORLD, group.process == 0 ? 0 : MPI_UNDEFINED, static_cast<int>(group.deployment),
                 &leaders.comm);
  if (group.process == 0) leaders.pids = pids_on_this_host(leaders.comm, leaders.num_processes);
  return leaders;
}

void MpiSession::abort(int exit_status) {
  if (active_) MPI_Abort(MPI_COMM_WORLD, exit_status);
  std::_Exit(exit_status);
}

}  // namespace tpsim::rank
