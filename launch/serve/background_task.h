// A thread for work that would hold up the streams of a thread of the wire.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tpsim::launch {

class BackgroundTask {
 public:
  BackgroundTask() : thread_([this] { run(); }) {}
  ~BackgroundTask() { stop(); }

  // Ends after the present piece of work; what waits is dropped.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    waiting_.clear();
  }

  // Any thread. `work` must not throw.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
      if (ended_) return;
      {
        const std::function<void()> work = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        work();
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ended_ = false;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace tpsim::launch
