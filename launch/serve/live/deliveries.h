// News for clients that wait for their time to come: those of the next moments with the threads that will
// tell them, each with a timer of its own, the others here.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "launch/serve/live/live_request.h"
#include "launch/serve/live/wall_clock.h"

namespace tpsim::launch {

class Deliveries {
 public:
  struct Item {
    std::shared_ptr<LiveRequest> request;
    TokenNews news;
  };

  // News for `request` at `time`, seconds of the replica's clock. What one request is told comes in the order
  // of the calls. The reference is valid until the next call.
  TokenNews& add(double time, std::shared_ptr<LiveRequest> request);
  // When the first are due; infinity: none are.
  double next_time() const;
  // Hands those that are due at `time` or before to their threads, those of one thread together, to be told
  // when `clock` is there.
  void hand_over(double time, const WallClock& clock);
  // The same for all, at once where one can: after what was handed over before.
  void hand_over_now();
  bool empty() const { return batches_.empty(); }

 private:
  struct Batch {
    double time;
    std::vector<Item> items;
  };

  void hand_over_first(WallClock::Time due);

  std::deque<Batch> batches_;                                  // by time
  WallClock::Time latest_{};                                   // that a thread was told to wait for
  std::vector<std::shared_ptr<std::vector<Item>>> of_thread_;  // scratch
};

}  // namespace tpsim::launch
