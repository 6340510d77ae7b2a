// Numbered tasks shared out over the processes of a job and the threads of each: whichever is free takes the
// next one, so that nobody is idle while a task waits.
//
// Process 0 hands out the tasks, works on some itself and collects all results; the others ask it. Only the
// main thread of a process talks to MPI. What a task returns must not depend on where or when it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rank/parallel/farm.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

// Cores that this process may use, divided among the processes of `group` on its host; at least 1.
std::uint32_t cores_of_process(const ProcessGroup& group);

class TaskFarm : public Farm {
 public:
  // Carries out one task, on any thread of any process, and returns its result as bytes. Where `stop` becomes
  // true it returns early, and what it returns is dropped.
  using Task = std::function<std::string(std::uint32_t task, const std::atomic<bool>& stop)>;

  // Collective. `session` must outlive the farm.
  explicit TaskFarm(MpiSession& session);

  struct Run {
    std::uint32_t num_tasks = 0;
    std::uint32_t threads = 1;  // of this process
    Task task;
    // Both are called on the calling thread. Results come in no order.
    std::function<void(std::uint32_t task, const std::string& result)> on_result;
    std::function<bool()> go_on;  // asked all the time; false: stop
  };
  // Process 0. Returns whether every task was carried out: not where go_on() said no, nor where a process was
  // lost (see loss()). Throws what a task of this process throws, and UserError where another process reports
  // an error. REQUIRES: called once.
  bool run(const Run& run);

  // The other processes: carries out tasks until process 0 shuts down, and returns its status. `prepare`
  // makes the task; what it or a task throws is told to process 0, which ends with it.
  int serve(std::uint32_t threads, const std::function<Task()>& prepare);

 private:
  void serve_until_shutdown(std::uint32_t threads, const Task& task, std::optional<int>& status);
};

}  // namespace tpsim::rank
