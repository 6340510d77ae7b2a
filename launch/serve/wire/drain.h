// The end of a server: a signal closes the door, and the calls inside are answered.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "launch/serve/wire/http_server.h"
#include "proto/base/stop_flag.h"

namespace tpsim::launch {

// A connection is a file descriptor, and shells give 1,024 of them: takes as many as it may.
void allow_descriptors();

class Drain {
 public:
  // `draining` is set when it begins. `timeout`: seconds that answers may take after it; none: as long as
  // they take.
  Drain(HttpServer& server, const StopFlag::Unhurried& signal, std::atomic<bool>& draining,
        std::optional<double> timeout)
      : server_(server), signal_(signal), draining_(draining), timeout_(timeout) {}

  // Asked again and again: whether the server goes on. Begins the drain at the first signal
  // (proto/base/stop_flag.h).
  bool go_on();
  // After the answers that were cut off were told so: gives them a moment to get out.
  void last_words() const;

 private:
  HttpServer& server_;
  const StopFlag::Unhurried& signal_;
  std::atomic<bool>& draining_;
  const std::optional<double> timeout_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace tpsim::launch
