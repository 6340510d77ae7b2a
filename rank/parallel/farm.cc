#include "rank/parallel/farm.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/stop_flag.h"
#include "rank/linear/thread_pool.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {
namespace {

// A worker notices the shutdown between two steps or looks, unless it is still reading a large trace.
constexpr double kGoodbyeSeconds = 10;
constexpr double kGoodbyeSecondsAfterSignal = 1;
constexpr double kDeathCheckSeconds = 0.05;

}  // namespace

std::optional<FarmPost::Message> FarmPost::receive() const {
  if (group_.num_processes == 1) return std::nullopt;
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_.comm, &arrived, &message, &status);
  if (arrived == 0) return std::nullopt;
  int size = 0;
  MPI_Get_count(&status, MPI_CHAR, &size);
  Message received{static_cast<std::uint32_t>(status.MPI_SOURCE), FarmTag{status.MPI_TAG}, {}};
  received.bytes.resize(static_cast<std::size_t>(size));
  MPI_Mrecv(received.bytes.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  return received;
}

void FarmPost::send(std::uint32_t process, FarmTag tag, const std::string& bytes) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, static_cast<int>(process),
            static_cast<int>(tag), group_.comm, &request);
  IdleBackoff backoff(false);
  for (int sent = 0; sent == 0;) {
    MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) backoff.wait();
  }
}

void Farm::look_for_dead(const std::vector<std::uint32_t>& owing, const char* what) {
  if (now() < next_look_) return;
  next_look_ = now() + kDeathCheckSeconds;
  for (std::uint32_t process = 1; process < group_.num_processes; ++process) {
    if (owing[process] == 0 || !group_.is_dead(process)) continue;
    session_.mark_lost();
    loss_ = fmt::format(fmt::runtime(what), process, owing[process]);
    return;
  }
}

void Farm::shutdown(int exit_status) noexcept {
  if (std::exchange(shut_down_, true) || session_.lost()) return;
  for (std::uint32_t process = 1; process < group_.num_processes; ++process)
    send(process, FarmTag::kShutdown, bytes_of(exit_status));
  std::uint32_t goodbyes = 0;
  IdleBackoff backoff(false);
  const double latest = now() + (StopFlag::requested() ? kGoodbyeSecondsAfterSignal : kGoodbyeSeconds);
  while (goodbyes + 1 < group_.num_processes) {
    if (const std::optional<Message> message = receive()) {
      if (message->tag == FarmTag::kGoodbye) ++goodbyes;
      continue;
    }
    if (now() > latest) return session_.mark_lost(exit_status);
    backoff.wait();
  }
}

Farm::~Farm() {
  if (group_.process == 0) shutdown(2);
}

namespace {

// The threads of one process. Its end stops what goes on and drops it.
class Threads {
 public:
  Threads(std::uint32_t count, const TaskFarm::Task& task) : task_(task), free_(count), pool_(count) {}
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() {
    stop_ = true;
    pool_.stop();
    pool_.join();
  }

  // Threads that have nothing to do.
  std::uint32_t num_free() const { return free_; }
  // REQUIRES: num_free() > 0.
  void give(std::uint32_t task) {
    --free_;
    boost::asio::post(pool_, [this, task] { carry_out(task); });
  }
  // A result that has not been taken yet. Throws what the task threw.
  std::optional<std::pair<std::uint32_t, std::string>> take() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    if (done_.empty()) return std::nullopt;
    std::pair<std::uint32_t, std::string> result = std::move(done_.front());
    done_.pop_front();
    ++free_;
    return result;
  }

 private:
  void carry_out(std::uint32_t task) {
    std::string result;
    std::exception_ptr error;
    try {
      result = task_(task, stop_);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    done_.emplace_back(task, std::move(result));
  }

  const TaskFarm::Task& task_;
  std::uint32_t free_;  // of the main thread
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::deque<std::pair<std::uint32_t, std::string>> done_;
  std::exception_ptr error_;
  boost::asio::thread_pool pool_;
};

}  // namespace

std::uint32_t cores_of_process(const ProcessGroup& group) {
  return std::max<std::uint32_t>(1, usable_cores() / group.job_on_host);
}

// As many ranks as processes: the farm's tasks have ranks of their own.
TaskFarm::TaskFarm(MpiSession& session) : Farm(session, session.process_group(session.num_processes())) {}

bool TaskFarm::run(const Run& run) {
  Threads threads(run.threads, run.task);
  std::deque<std::uint32_t> asking;  // processes with a free thread, one entry for each
  std::vector<std::uint32_t> owing(group_.num_processes, 0);
  std::uint32_t next = 0;
  std::uint32_t done = 0;
  IdleBackoff backoff(false);
  while (done < run.num_tasks && !loss_) {
    if (!run.go_on()) return false;
    bool moved = false;
    while (std::optional<Message> message = receive()) {
      moved = true;
      if (message->tag == FarmTag::kError)
        throw_user_error("process {}: {}", message->process, message->bytes);
      asking.push_back(message->process);
      if (message->tag != FarmTag::kResult) continue;
      --owing[message->process];
      ++done;
      run.on_result(number_in<std::uint32_t>(message->bytes), message->bytes.substr(sizeof(std::uint32_t)));
    }
    while (const auto result = threads.take()) {
      moved = true;
      ++done;
      run.on_result(result->first, result->second);
    }
    for (; next < run.num_tasks && threads.num_free() > 0; ++next) threads.give(next);
    for (; next < run.num_tasks && !asking.empty(); ++next, asking.pop_front()) {
      send(asking.front(), FarmTag::kTask, bytes_of(next));
      ++owing[asking.front()];
    }
    look_for_dead(owing, "process {} has died with {} settings that it was serving");
    if (moved) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
  return done == run.num_tasks;
}

void TaskFarm::serve_until_shutdown(std::uint32_t num_threads, const Task& task, std::optional<int>& status) {
  Threads threads(num_threads, task);
  for (std::uint32_t i = 0; i < num_threads; ++i) send(0, FarmTag::kReady, "");
  IdleBackoff backoff(false);
  while (true) {
    if (const std::optional<Message> message = receive()) {
      if (message->tag == FarmTag::kShutdown) {
        status = number_in<int>(message->bytes);
        return;
      }
      threads.give(number_in<std::uint32_t>(message->bytes));
      backoff.reset();
    } else if (const auto result = threads.take()) {
      send(0, FarmTag::kResult, bytes_of(result->first) + result->second);
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
}

int TaskFarm::serve(std::uint32_t threads, const std::function<Task()>& prepare) {
  std::optional<int> status;
  try {
    const Task task = prepare();
    serve_until_shutdown(threads, task, status);
  } catch (const std::exception& error) {
    send(0, FarmTag::kError, error.what());
  }
  IdleBackoff backoff(false);
  while (!status) {
    const std::optional<Message> message = receive();
    if (message && message->tag == FarmTag::kShutdown) status = number_in<int>(message->bytes);
    if (!message) backoff.wait();
  }
  send(0, FarmTag::kGoodbye, "");
  return *status;
}

GroupFarm::GroupFarm(MpiSession& session, const ProcessGroup& leaders)
    : Farm(session, leaders), asks_(leaders.num_processes, false), owes_(leaders.num_processes, 0) {}

void GroupFarm::take_messages(const Run& run) {
  while (const std::optional<Message> message = receive()) {
    const std::uint32_t leader = message->process;
    switch (message->tag) {
      case FarmTag::kError:
        throw_user_error("group {}: {}", leader, message->bytes);
      case FarmTag::kLoss:
        owes_[leader] = 0;
        session_.mark_lost();
        loss_ = fmt::format("group {}: {}", leader, message->bytes);
        return;
      case FarmTag::kResult:
        owes_[leader] = 0;
        ++done_;
        run.on_result(number_in<std::uint32_t>(message->bytes), message->bytes.substr(sizeof(std::uint32_t)));
        [[fallthrough]];
      default:
        asks_[leader] = true;
    }
  }
}

void GroupFarm::hand_out(const Run& run) {
  for (std::uint32_t leader = 1; leader < group_.num_processes && next_ < run.num_tasks; ++leader) {
    if (!asks_[leader]) continue;
    send(leader, FarmTag::kTask, bytes_of(next_++));
    asks_[leader] = false;
    owes_[leader] = 1;
  }
}

// What the first leader does between two steps. Whether the run goes on.
bool GroupFarm::look_around(const Run& run) {
  take_messages(run);
  hand_out(run);
  look_for_dead(owes_, "process 0 of group {} has died with the setting that it was serving");
  return !loss_ && run.go_on();
}

bool GroupFarm::run(const Run& run) {
  IdleBackoff backoff(false);
  const auto go_on = [&] { return look_around(run); };
  while (done_ < run.num_tasks) {
    const std::uint32_t before = done_;
    if (!go_on()) return false;
    if (next_ < run.num_tasks) {
      const std::uint32_t mine = next_++;
      try {
        const std::optional<std::string> result = run.task(mine, go_on);
        if (!result) return false;
        run.on_result(mine, *result);
        ++done_;
      } catch (const RankLost& lost) {
        loss_ = lost.what();
        return false;
      }
    }
    if (done_ != before) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
  return true;
}

int GroupFarm::serve(const Task& task) {
  IdleBackoff backoff(false);
  send(0, FarmTag::kReady, "");
  while (!status_) {
    const std::optional<Message> message = receive();
    if (!message) {
      backoff.wait();
      continue;
    }
    backoff.reset();
    if (message->tag == FarmTag::kShutdown) {
      status_ = number_in<int>(message->bytes);
      break;
    }
    try {
      const auto number = number_in<std::uint32_t>(message->bytes);
      const std::optional<std::string> result = task(number, [this] {
        // Nothing else comes while it works.
        if (const std::optional<Message> end = receive()) status_ = number_in<int>(end->bytes);
        return !status_;
      });
      if (result) send(0, FarmTag::kResult, bytes_of(number) + *result);
    } catch (const RankLost& lost) {
      send(0, FarmTag::kLoss, lost.what());
    } catch (const std::exception& error) {
      send(0, FarmTag::kError, error.what());
    }
  }
  send(0, FarmTag::kGoodbye, "");
  return *status_;
}

}  // namespace tpsim::rank
