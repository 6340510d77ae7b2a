#include "launch/serve/gate.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tpsim::launch {

double Gate::now() { return last_ = std::max(last_, clock_.now()); }

Gate::Pass Gate::make_pass() {
  return {this, [gate = shared_from_this()](void*) { gate->leave(); }};
}

void Gate::enter(WireThread& thread, std::function<void(Pass, bool)> go, std::function<void(unsigned)> stop) {
  std::unique_lock lock(mutex_);
  const double time = now();
  if (admission_.take(time)) {
    lock.unlock();
    go(make_pass(), /*waited=*/false);
    return;
  }
  const std::uint64_t id = next_++;
  const std::optional<scheduler::Admission::Wait> wait = admission_.wait(id, time);
  if (!wait) {
    lock.unlock();
    stop(429);
    return;
  }
  waiting_.emplace(id, Waiting{thread, std::move(go)});
  lock.unlock();
  thread.post_at(clock_.time_at(wait->until), [gate = shared_from_this(), id, stop = std::move(stop)] {
    {
      const std::lock_guard guard(gate->mutex_);
      if (gate->waiting_.erase(id) == 0) return;
      gate->admission_.give_up(id);
    }
    stop(408);
  });
}

void Gate::leave() {
  const std::lock_guard lock(mutex_);
  const std::optional<std::uint64_t> next = admission_.give_back(now());
  if (!next) return;
  const auto found = waiting_.find(*next);
  if (found == waiting_.end()) return;  // closed
  found->second.thread.post([gate = shared_from_this(), go = std::move(found->second.go)] {
    go(gate->make_pass(), /*waited=*/true);
  });
  waiting_.erase(found);
}

void Gate::close() {
  std::unordered_map<std::uint64_t, Waiting> waiting;
  const std::lock_guard lock(mutex_);
  waiting.swap(waiting_);
}

}  // namespace tpsim::launch
