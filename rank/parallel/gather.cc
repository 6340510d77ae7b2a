#include "rank/parallel/gather.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {
namespace {

constexpr double kLookSeconds = 0.05;

// Bytes that are sent to all with their number, in one message; more follow in another.
constexpr std::size_t kTogether = 8192;

void wait_for(MPI_Request request, const ProcessGroup& group, const std::function<void()>& on_wait,
              bool often) {
  IdleBackoff backoff(often);
  double next_look = now() + kLookSeconds;
  for (int arrived = 0; arrived == 0;) {
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    if (arrived != 0) return;
    backoff.wait();
    if (now() < next_look) continue;
    next_look = now() + kLookSeconds;
    on_wait();
    for (std::uint32_t process = 0; process < group.num_processes; ++process) {
      if (group.is_dead(process))
        throw RankLost(fmt::format("process {} has died, and what it worked on with it", process));
    }
  }
}

}  // namespace

std::vector<std::string> gather_by_all(const ProcessGroup& group, const std::string& bytes,
                                       const std::function<void()>& on_wait, bool often) {
  if (group.num_processes == 1) return {bytes};
  const std::size_t room = std::max<std::size_t>(64, kTogether / group.num_processes);
  const int mine = static_cast<int>(bytes.size());
  std::string head(room, '\0'), heads(room * group.num_processes, '\0');
  std::memcpy(head.data(), &mine, sizeof mine);
  const auto width = static_cast<int>(room);
  const std::size_t fits = room - sizeof mine;
  std::memcpy(head.data() + sizeof mine, bytes.data(), std::min(fits, bytes.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(head.data(), width, MPI_CHAR, heads.data(), width, MPI_CHAR, group.comm, &request);
  wait_for(request, group, on_wait, often);
  std::vector<std::string> out(group.num_processes);
  std::vector<int> sizes(group.num_processes), places(group.num_processes);  // of what did not fit
  int all = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const char* const of_process = heads.data() + room * i;
    int size = 0;
    std::memcpy(&size, of_process, sizeof size);
    out[i].assign(of_process + sizeof size, std::min(fits, static_cast<std::size_t>(size)));
    places[i] = all;
    all += sizes[i] = size - static_cast<int>(out[i].size());
  }
  if (all == 0) return out;
  std::string together(static_cast<std::size_t>(all), '\0');
  const int rest = sizes[group.process];
  MPI_Iallgatherv(bytes.data() + (mine - rest), rest, MPI_CHAR, together.data(), sizes.data(), places.data(),
                  MPI_CHAR, group.comm, &request);
  wait_for(request, group, on_wait, often);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].append(together, static_cast<std::size_t>(places[i]), static_cast<std::size_t>(sizes[i]));
  return out;
}

}  // namespace tpsim::rank
