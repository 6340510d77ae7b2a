// What the router before a live server lets through: the rule of scheduler/router/admission.h for calls that
// really come, one token each, as sglang_router takes them before it reads a call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "launch/serve/live/wall_clock.h"
#include "launch/serve/wire/exchange.h"
#include "scheduler/router/admission.h"

namespace tpsim::launch {

class Gate : public std::enable_shared_from_this<Gate> {
 public:
  // Held by a call that was let through, until it is over.
  using Pass = std::shared_ptr<void>;

  // REQUIRES: config.capacity > 0. Its seconds are those of `clock`, which must outlive it.
  Gate(const scheduler::AdmissionConfig& config, const WallClock& clock)
      : clock_(clock), admission_(config) {}

  // Calls one of these on `thread`, now or when it is decided: `go` with a pass and whether it had to wait,
  // or `stop` with the status that the call is refused with. Called on `thread`.
  void enter(WireThread& thread, std::function<void(Pass, bool)> go, std::function<void(unsigned)> stop);
  // Whoever waits hears nothing more.
  void close();

 private:
  struct Waiting {
    WireThread& thread;
    std::function<void(Pass, bool)> go;
  };
  double now();  // never before the last
  Pass make_pass();
  void leave();

  const WallClock& clock_;
  std::mutex mutex_;
  scheduler::Admission admission_;
  double last_ = 0;
  std::uint64_t next_ = 0;
  std::unordered_map<std::uint64_t, Waiting> waiting_;
};

}  // namespace tpsim::launch
