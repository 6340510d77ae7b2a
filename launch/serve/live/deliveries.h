// News for clients, on their way to the threads that will tell them when their time has come: those of one
// moment and one thread together.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "launch/serve/live/live_request.h"
#include "launch/serve/live/wall_clock.h"

namespace tpsim::launch {

class Deliveries {
 public:
  // News for `request` at `time`, seconds of the replica's clock. What one request is told at one time comes
  // in the order of the calls. The reference is valid until the next call.
  TokenNews& add(double time, std::shared_ptr<LiveRequest> request) {
    WireThread& thread = request->thread();
    std::shared_ptr<std::vector<Item>>& items = batches_[{time, thread.index()}];
    if (items == nullptr) items = std::make_shared<std::vector<Item>>();
    items->push_back({std::move(request), {}});
    return items->back().news;
  }

  // Hands all of them over; `due_at(time)` says when each is due.
  template <typename DueAt>
  void hand_over(const DueAt& due_at) {
    for (auto& [of, items] : batches_) {
      const WallClock::Time due = due_at(of.first);
      latest_ = std::max(latest_, due);
      for (Item& item : *items) item.news.due = due;
      WireThread& thread = items->front().request->thread();
      thread.post_at(due, [items = std::move(items)] {
        for (const Item& item : *items) item.request->on_news(item.news);
      });
    }
    batches_.clear();
  }
  // The same, at once where one can: after what was handed over before.
  void hand_over_now() {
    const WallClock::Time now = std::max(latest_, std::chrono::steady_clock::now());
    hand_over([now](double) { return now; });
  }

 private:
  struct Item {
    std::shared_ptr<LiveRequest> request;
    TokenNews news;
  };

  std::map<std::pair<double, std::size_t>, std::shared_ptr<std::vector<Item>>>
      batches_;               // by time and thread
  WallClock::Time latest_{};  // that a thread was told to wait for
};

}  // namespace tpsim::launch
