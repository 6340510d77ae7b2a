// A replica on the wall clock.
//
// One thread, that of run(), steps the replica; the threads of the wire hand it requests and cancellations. A
// round of its scheduler is carried out when the wall has come to it, and a little more: a request is stamped
// with the moment at which its first bytes came, and takes a while to be read. That little is half of what
// the simulated front end takes on the way back, so that tokens are known before clients are to see them, and
// are held until then.
//
// Numeric execution has no time to wait for: rounds follow each other as fast as they are computed, and
// tokens go out when they are there.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launch/serve/live/live_request.h"
#include "launch/serve/live/server_statistics.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"
#include "scheduler/replica.h"
#include "scheduler/request_source.h"

namespace tpsim::launch {

// News for clients, on their way to the threads that will tell them when their time has come: those of one
// moment and one thread together.
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

struct LiveConfig {
  bool computes = false;                  // --executor numeric
  std::uint32_t max_queued_requests = 0;  // SGLang's --max-queued-requests; 0: any number
};

class LiveReplica final : private scheduler::ReplicaEvents {
 public:
  // All references must outlive it.
  LiveReplica(const LiveConfig& config, const scheduler::SchedulerConfig& scheduler,
              const scheduler::FrontEndConfig& front_end, scheduler::Executor& executor,
              const WallClock& clock, LiveDescription description);

  // Any thread:
  // A client sent `request` at `sent`. Its number, for cancel(). News of it go to `listener`, which is held
  // until its end; the last says how it ended.
  std::uint64_t submit(scheduler::RequestPtr request, WallClock::Time sent,
                       std::shared_ptr<LiveRequest> listener);
  // Nobody wants request `id` any more; its end is told all the same, unless it has ended.
  void cancel(std::uint64_t id);
  // Empties the prefix cache where nothing runs or waits, and tells `done` (on the replica's thread) whether
  // it did.
  void flush_cache(std::function<void(bool)> done);
  LiveStatistics statistics() const { return statistics_.snapshot(); }
  std::uint64_t open_requests() const { return open_requests_; }

  // Steps the replica until `go_on`, asked at least twenty times a second, says no. Throws what the executor
  // throws.
  void run(const std::function<bool()>& go_on);
  // After run(): tells all requests that still wait that nothing more comes, with `because` and 503.
  void abandon(const std::string& because);

 private:
  struct Open {
    std::shared_ptr<LiveRequest> listener;
    double sent = 0;           // seconds of the replica's clock
    std::uint64_t length = 0;  // tokens of its prompt and, when it has started, its answer so far
    bool started = false;
    bool told_end = false;  // with its last tokens
  };

  // A request that even an idle server does not admit is refused: clients that may come later do not help it.
  bool more_to_come() const override { return false; }
  bool wants_tokens() const override { return true; }
  void on_tokens(const scheduler::PassResult& result) override;
  void on_finished(const scheduler::Req& req, scheduler::RequestState state, const char* because,
                   double time) override;
  void on_inter_token(double gap, std::uint32_t count) override { statistics_.on_inter_token(gap, count); }
  void on_step(const scheduler::StepRecord& record, double gpu_seconds, bool) override {
    statistics_.on_step(record, gpu_seconds);
  }

  // Has `work` done on the replica's thread; after abandon() here and now.
  void command(std::function<void()> work);
  void take_commands();
  void admit(std::uint64_t id, scheduler::RequestPtr request, WallClock::Time sent,
             std::shared_ptr<LiveRequest> listener);
  void flush_if_idle();
  bool step();
  void wait_until(double seconds);
  double event_time(double time) { return latest_ = std::max(latest_, time); }

  const LiveConfig config_;
  const WallClock& clock_;
  scheduler::Replica replica_;
  ServerStatistics statistics_;
  double grace_ = 0;   // seconds of the replica's clock that rounds are carried out after their time
  double latest_ = 0;  // time of the last call to the replica
  std::unordered_map<std::uint64_t, Open> open_;
  ServerStatistics::Lengths lengths_;               // of those in open_
  std::vector<std::function<void(bool)>> flushes_;  // waiting for the last round
  Deliveries deliveries_;
  std::atomic<std::uint64_t> next_id_ = 0;
  std::atomic<std::uint64_t> open_requests_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> commands_;
  std::string because_;              // of abandon()
  std::atomic<bool> ended_ = false;  // after it
};

}  // namespace tpsim::launch
