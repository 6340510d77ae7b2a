// Where requests come from: a trace, a generator, the users of conversations, the network.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// A request while anybody holds it.
using RequestPtr = std::shared_ptr<const WorkloadRequest>;

// Of a request that outlives all who get the pointer.
inline RequestPtr borrowed(const WorkloadRequest& request) { return {std::shared_ptr<void>(), &request}; }

// Yields requests in the order of their times. A source may wait for answers: each that was yielded comes
// back once, through on_finished().
class RequestSource {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Sent {
    std::uint64_t id = 0;  // position among all that the source yields; unique
    double time = 0;       // when its client sends it; seconds
    bool early = false;    // a turn of a conversation: the answer that it replies to had not ended
    RequestPtr request = {};

    auto state() { return std::tie(id, time, early, request); }
  };

  virtual ~RequestSource() = default;
  // When the next request is sent, not before the one of the last pop(); kNever where none is due before one
  // comes back.
  virtual double next_time() const = 0;
  // REQUIRES: next_time() is not kNever.
  virtual Sent pop() = 0;
  // Request `id` came back at `now`: answered, refused or cancelled. REQUIRES: it was yielded.
  virtual void on_finished(std::uint64_t id, double now) = 0;
  // How many it yields in all; 0: not known.
  virtual std::uint64_t size() const = 0;
};

}  // namespace tpsim::scheduler
