#include "launch/serve/live/deliveries.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace tpsim::launch {

TokenNews& Deliveries::add(double time, std::shared_ptr<LiveRequest> request) {
  // Passes end one after another: nearly always the last.
  auto place = batches_.end();
  while (place != batches_.begin() && std::prev(place)->time > time) --place;
  if (place == batches_.begin() || std::prev(place)->time < time)
    place = batches_.insert(place, Batch{time, {}});
  else
    --place;
  place->items.push_back({std::move(request), {}});
  return place->items.back().news;
}

double Deliveries::next_time() const {
  return batches_.empty() ? std::numeric_limits<double>::infinity() : batches_.front().time;
}

void Deliveries::hand_over(double time, const WallClock& clock) {
  while (!batches_.empty() && batches_.front().time <= time)
    hand_over_first(clock.time_at(batches_.front().time));
}

void Deliveries::hand_over_now() {
  while (!batches_.empty()) hand_over_first(std::max(latest_, std::chrono::steady_clock::now()));
}

void Deliveries::hand_over_first(WallClock::Time due) {
  latest_ = due;
  std::vector<WireThread*> threads;
  for (Item& item : batches_.front().items) {
    WireThread& thread = item.request->thread();
    const std::size_t index = thread.index();
    if (of_thread_.size() <= index) of_thread_.resize(index + 1);
    if (of_thread_[index] == nullptr) {
      of_thread_[index] = std::make_shared<std::vector<Item>>();
      threads.push_back(&thread);
    }
    item.news.due = due;
    of_thread_[index]->push_back(std::move(item));
  }
  batches_.pop_front();
  for (WireThread* thread : threads) {
    thread->post_at(due, [items = std::move(of_thread_[thread->index()])] {
      for (const Item& item : *items) item.request->on_news(item.news);
    });
    of_thread_[thread->index()] = nullptr;
  }
}

}  // namespace tpsim::launch
