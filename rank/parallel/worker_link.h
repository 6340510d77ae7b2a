// The stream of batches between processes. WorkerLink is process 0's end: messages to every other process of
// the group, one answer back from each for each message. run_worker() is what the others do: they carry out
// runs as they come, until process 0 shuts them down.
//
// Sends are nonblocking; at most `window` messages are unanswered, so a slow process holds the schedule back
// instead of piling up memory. A process that owes an answer and is dead, or silent for too long, is lost.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "rank/parallel/batch_wire.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

struct MpiOptions {
  // Gather the answer of every step before going on: for ranks whose time process 0 cannot work out itself.
  bool synchronous = false;
  double answer_timeout_seconds = 10;
  std::uint32_t batches_per_message = 256;
  std::uint32_t bytes_per_message = 64 * 1024;  // a batch is never divided
  std::uint32_t window = 8;                     // messages
};

// Tags of what workers send.
inline constexpr int kMessageTag = 1;  // process 0 -> worker: frames of batch_wire.h
inline constexpr int kAnswerTag = 2;   // AnswerHead, then doubles
inline constexpr int kReportTag = 3;   // serialized proto::RunReport with only `ranks`
inline constexpr int kErrorTag = 4;    // a sentence; the worker then waits for kShutdown
inline constexpr int kGoodbyeTag = 5;  // the answer to kShutdown; empty

// What a worker says of one message. Step times follow (one double per batch) or, in a synchronous run, one
// StepTimes per batch.
struct AnswerHead {
  std::uint32_t run_index = 0;
  std::uint32_t num_batches = 0;
  std::uint64_t first_sequence_number = 0;
};

// The last batch of a run.
proto::ForwardBatch end_of_run(std::uint64_t sequence_number);

class WorkerLink {
 public:
  // An answer of the current run, as process `process` gave it to message number `message`.
  using OnAnswer = std::function<void(std::uint32_t process, std::uint64_t message, const AnswerHead& head,
                                      std::span<const char> payload)>;

  // REQUIRES: group.process == 0, group.num_processes > 1. `session` and `group` live longer.
  WorkerLink(MpiSession& session, const ProcessGroup& group, const MpiOptions& options);
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;
  // Tells workers that still wait to exit with status 2; see shutdown().
  ~WorkerLink();

  const ProcessGroup& group() const { return group_; }
  const MpiOptions& options() const { return options_; }

  // Begins a run: `on_answer` is called from within the functions below. Returns the run's index.
  std::uint32_t begin_run(std::uint64_t configuration_hash, OnAnswer on_answer);
  // The current run is over (or given up): its late answers are dropped.
  void end_run();

  // The message that is being filled. Its number is message_number().
  MessageWriter& message() { return slot(filling_).writer; }
  std::uint64_t message_number() const { return filling_; }
  // Whether the message holds as much as it should.
  bool message_full() const;
  // Sends the message and starts the next one; waits while the window is full.
  // Throws RankLost, and UserError where a worker reported an error.
  void send();
  // Handles answers that have arrived, without waiting.
  void poll();
  // For a caller that waits for something else. Throws RankLost where a process has died.
  void check_alive();
  // Waits until every message sent is answered. Throws as send().
  void wait_for_answers();
  // Sends `last` (end_of_run()), waits for the report of every worker and appends their ranks to `reports`.
  // Throws as send(), and UserError for a report that cannot be read.
  void finish_run(const proto::ForwardBatch& last, std::vector<proto::RankReport>& reports);
  // Processes may wait for each other in a collective, where no message reaches them: gives the session up,
  // which ends with `exit_status` everywhere.
  void give_up(int exit_status) { session_.mark_lost(exit_status); }
  // Ends the workers' loops; they exit with `exit_status`. Nothing can be sent afterwards. Does not throw:
  // where a process does not take the message, the session is marked as lost.
  void shutdown(int exit_status) noexcept;

 private:
  struct Slot {
    MessageWriter writer;
    std::vector<MPI_Request> sends;
  };

  Slot& slot(std::uint64_t message) { return slots_[message % slots_.size()]; }
  const Slot& slot(std::uint64_t message) const { return slots_[message % slots_.size()]; }
  void start_sends();
  bool sends_done(Slot& of);
  std::uint64_t answered_by_all() const;
  bool receive_one();
  template <typename Done>
  void wait_until(Done done);
  void wait_more(double seconds);
  [[noreturn]] void lose(const std::string& how);
  std::vector<std::string> collect_reports();

  MpiSession& session_;
  const ProcessGroup group_;
  const MpiOptions options_;
  std::vector<Slot> slots_;
  std::uint64_t filling_ = 0;            // number of the message being filled; all before it are sent
  std::vector<std::uint64_t> answered_;  // messages answered, per process; [0] unused
  std::vector<double> silence_;          // seconds waited for the process since it spoke last
  std::vector<std::string> reports_;
  std::vector<char> received_;
  OnAnswer on_answer_;
  std::uint32_t next_run_index_ = 0;
  std::uint32_t current_run_ = 0;
  bool shut_down_ = false;
};

// The part of a run that this process prepares by itself, from the same command line as process 0.
struct WorkerRun {
  std::unique_ptr<WorkerRanks> ranks;
  // Of everything that decides prices; process 0's must be the same.
  std::uint64_t configuration_hash = 0;
};

// Returns the exit status that process 0 asks for. `make_run` is called at the start of each run with its
// index (0, 1, …). Whatever it or the run throws is told to process 0, which ends the job with it.
// REQUIRES: group.process > 0.
int run_worker(const ProcessGroup& group, const std::function<WorkerRun(std::uint32_t run_index)>& make_run);

}  // namespace tpsim::rank
