#include "rank/parallel/gather.h"

#include <fmt/format.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {
namespace {

constexpr double kLookSeconds = 0.05;

void wait_for(MPI_Request request, const ProcessGroup& group, const std::function<void()>& on_wait) {
  IdleBackoff backoff(false);
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
                                       const std::function<void()>& on_wait) {
  if (group.num_processes == 1) return {bytes};
  const int mine = static_cast<int>(bytes.size());
  std::vector<int> sizes(group.num_processes), places(group.num_processes);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, group.comm, &request);
  wait_for(request, group, on_wait);
  int all = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    places[i] = all;
    all += sizes[i];
  }
  std::string together(static_cast<std::size_t>(all), '\0');
  MPI_Iallgatherv(bytes.data(), mine, MPI_CHAR, together.data(), sizes.data(), places.data(), MPI_CHAR,
                  group.comm, &request);
  wait_for(request, group, on_wait);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    out.push_back(together.substr(static_cast<std::size_t>(places[i]), static_cast<std::size_t>(sizes[i])));
  return out;
}

}  // namespace tpsim::rank
