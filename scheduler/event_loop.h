// What owns the clock: places the requests of a source on a replica, event by event.
//
// On the virtual clock, until next_time() is kNever: step(). On the wall, step() when it has come to
// next_time(), so that whoever came before is part of what is decided then.
#pragma once

#include <algorithm>

#include "scheduler/replica.h"
#include "scheduler/request_source.h"

namespace tpsim::scheduler {

class EventLoop {
 public:
  EventLoop(RequestSource& source, Replica& replica) : source_(source), replica_(replica) {}

  // Of the next event; RequestSource::kNever: none unless the source gets one from outside.
  double next_time() const { return std::min(source_.next_time(), replica_.next_event_time()); }
  // The next event: requests come before the round of a scheduler at the same time. REQUIRES: next_time() is
  // not kNever.
  void step() {
    if (source_.next_time() <= replica_.next_event_time()) {
      const RequestSource::Sent sent = source_.pop();
      early_ += sent.early ? 1 : 0;
      replica_.submit(sent);
    } else {
      replica_.advance();
    }
  }
  // Requests that were sent before the answer that they reply to had ended.
  std::uint64_t early() const { return early_; }

 private:
  RequestSource& source_;
  Replica& replica_;
  std::uint64_t early_ = 0;
};

}  // namespace tpsim::scheduler
