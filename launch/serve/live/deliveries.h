// News for clients that wait for their time to come.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "launch/serve/live/live_request.h"

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
  // Posts to their threads those that are due at `now`, those of one thread together.
  void post_until(double now);
  bool empty() const { return batches_.empty(); }

 private:
  struct Batch {
    double time;
    std::vector<Item> items;
  };

  std::deque<Batch> batches_;                                  // by time
  std::vector<std::shared_ptr<std::vector<Item>>> of_thread_;  // scratch
};

}  // namespace tpsim::launch
