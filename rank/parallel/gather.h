// What every process of a group has, told to all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

// The bytes of each process of `group`, by process. Collective: main threads only, and each waits, without
// spinning and calling `on_wait` meanwhile, until all have come. Throws what on_wait() throws, and RankLost
// where a process is dead; the session must be marked as lost then, for the others wait on. `often`: that is
// done all the time, and a sleeper would be late for it. REQUIRES: less than 2 GiB together.
std::vector<std::string> gather_by_all(const ProcessGroup& group, const std::string& bytes,
                                       const std::function<void()>& on_wait, bool often = false);

}  // namespace tpsim::rank
