#include "rank/parallel/task_farm.h"

#include <mpi.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "proto/base/error.h"
#include "rank/linear/thread_pool.h"
#include "rank/parallel/idle_backoff.h"

namespace tpsim::rank {

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

}  // namespace tpsim::rank
