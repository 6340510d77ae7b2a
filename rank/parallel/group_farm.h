// Numbered tasks shared out over groups of processes: a group that is free takes the next one, so that none
// is idle while a task waits. For tasks that every process of a group takes part in; others are for
// task_farm.h.
//
// Of each group its process 0 calls: it leads. The first leader hands out the tasks, works on some with its
// group as the others do, and collects all results. It has no thread for that: a task asks go_on() after
// every step, and the first leader answers the others then. What a task returns must not depend on where it
// runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rank/parallel/farm.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

class GroupFarm : public Farm {
 public:
  // Carries out one task with the group of this leader, and returns its result as bytes; nothing where
  // go_on() said no. Throws RankLost where its group has lost a process.
  using Task =
      std::function<std::optional<std::string>(std::uint32_t task, const std::function<bool()>& go_on)>;

  // `leaders`: MpiSession::leaders(). `session` must outlive the farm.
  GroupFarm(MpiSession& session, const ProcessGroup& leaders);

  struct Run {
    std::uint32_t num_tasks = 0;
    Task task;
    std::function<void(std::uint32_t task, const std::string& result)> on_result;  // in no order
    std::function<bool()> go_on;  // asked all the time; false: stop
  };
  // The first leader. Returns whether every task was carried out: not where go_on() said no, nor where a
  // process was lost (see loss()). Throws what a task of its own throws, and UserError where another leader
  // reports an error. REQUIRES: called once.
  bool run(const Run& run);

  // The other leaders: carries out tasks until the first one shuts down, and returns its status.
  int serve(const Task& task);

 private:
  void take_messages(const Run& run);
  void hand_out(const Run& run);
  bool look_around(const Run& run);

  // Of the first leader.
  std::uint32_t next_ = 0, done_ = 0;
  std::vector<bool> asks_;           // by leader
  std::vector<std::uint32_t> owes_;  // by leader: 1 or 0 tasks
  // Of the others.
  std::optional<int> status_;
};

}  // namespace tpsim::rank
