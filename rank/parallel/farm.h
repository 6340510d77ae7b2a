// Farms of processes: tasks shared out over all of them (TaskFarm) or over groups (GroupFarm), and the
// messages between them: a tag and bytes, waited for without spinning. Main thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

// The bytes of a task are its number; of a result the number, then what the task returned.
enum class FarmTag : int {
  kReady = 1,  // to process 0: a thread, or a group, is free; empty
  kResult,     // to process 0: a result; what worked on it is free again
  kError,      // to process 0: a sentence
  kLoss,       // to process 0: a sentence
  kGoodbye,    // to process 0: the answer to kShutdown; empty
  kTask,       // from process 0
  kShutdown,   // from process 0: the exit status
};

class FarmPost {
 public:
  struct Message {
    std::uint32_t process = 0;  // that sent it
    FarmTag tag = FarmTag::kReady;
    std::string bytes;
  };

  explicit FarmPost(const ProcessGroup& group) : group_(group) {}

  const ProcessGroup& group() const { return group_; }
  // Whatever has come, of any process; nothing in a group of one.
  std::optional<Message> receive() const;
  // Returns when the message is on its way.
  void send(std::uint32_t process, FarmTag tag, const std::string& bytes) const;

 protected:
  const ProcessGroup group_;
};

// What TaskFarm and GroupFarm have in common: the messages, and the end. Process 0 hands out the tasks.
class Farm : public FarmPost {
 public:
  Farm(const Farm&) = delete;
  Farm& operator=(const Farm&) = delete;

  // The sentence of a lost process, if there was one.
  const std::optional<std::string>& loss() const { return loss_; }
  // Process 0, last of all: the others end with this status, and stop what they are doing. Where one does not
  // answer, the session is marked as lost.
  void shutdown(int exit_status) noexcept;

 protected:
  Farm(MpiSession& session, const ProcessGroup& group) : FarmPost(group), session_(session) {}
  // On process 0: shutdown(2), where shutdown() was not called.
  ~Farm();

  // Says so in loss() where a process of `owing` (tasks by process) is dead; looks every 50 ms at most.
  // `what`: "process {} has died …", of the process and its tasks.
  void look_for_dead(const std::vector<std::uint32_t>& owing, const char* what);

  MpiSession& session_;
  std::optional<std::string> loss_;

 private:
  bool shut_down_ = false;
  double next_look_ = 0;
};

// Numbers, and structs of them, as bytes and back; zeros where there are too few.
template <typename Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

template <typename Number>
Number number_in(const std::string& bytes) {
  Number number{};
  if (bytes.size() >= sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// Cores that this process may use, divided among the processes of `group` on its host; at least 1.
std::uint32_t cores_of_process(const ProcessGroup& group);

// Numbered tasks shared out over the processes of a job and the threads of each: whichever is free takes the
// next one, so that nobody is idle while a task waits.
//
// Process 0 hands out the tasks, works on some itself and collects all results; the others ask it. Only the
// main thread of a process talks to MPI. What a task returns must not depend on where or when it runs.
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

// Numbered tasks shared out over groups of processes: a group that is free takes the next one, so that none
// is idle while a task waits. For tasks that every process of a group takes part in; others are for
// TaskFarm.
//
// Of each group its process 0 calls: it leads. The first leader hands out the tasks, works on some with its
// group as the others do, and collects all results. It has no thread for that: a task asks go_on() after
// every step, and the first leader answers the others then. What a task returns must not depend on where it
// runs.
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
