// How late tokens leave: from when they were due until the socket has them. Any thread.
#pragma once

#include <chrono>
#include <mutex>

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

class Lateness {
 public:
  // What was due at `due` has just left.
  void note(std::chrono::steady_clock::time_point due) {
    const double late = std::chrono::duration<double>(std::chrono::steady_clock::now() - due).count();
    const std::lock_guard lock(mutex_);
    seconds_.observe(late);
  }
  LiveHistogram seconds() const {
    const std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  mutable std::mutex mutex_;
  LiveHistogram seconds_{kLatenessEdges};
};

}  // namespace tpsim::launch
