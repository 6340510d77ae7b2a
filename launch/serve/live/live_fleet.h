// A replica on the wall clock, or several behind a router, pairs that split prefill from decode among them.
//
// One thread, that of run(), steps the replicas, always the one that is due first; the threads of the wire
// hand it requests and cancellations. The router chooses when a request is handed over. A round of a
// scheduler is carried out when the wall has come to it, and a little more: a request is stamped with the
// moment at which its first bytes came, and takes a while to be read. That little is half of what the
// simulated front end takes on the way back, so that tokens are known before clients are to see them, and are
// held until then.
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
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launch/serve/live/live_request.h"
#include "launch/serve/live/server_statistics.h"
#include "scheduler/config.h"
#include "scheduler/due_times.h"
#include "scheduler/fleet.h"
#include "scheduler/pairs.h"
#include "scheduler/replica.h"
#include "scheduler/request_source.h"
#include "scheduler/router/in_flight.h"
#include "scheduler/router/router.h"

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

struct LiveDescriptions {
  std::vector<LiveDescription> each;
  LiveDescription all;
};

struct LiveRouters {
  scheduler::RouterConfig servers, decode;  // the latter of servers that go on with what others prefill
};

struct LiveConfig {
  bool computes = false;                  // --executor numeric
  std::uint32_t max_queued_requests = 0;  // SGLang's --max-queued-requests; 0: any number
};

class LiveFleet final {
 public:
  // `descriptions`: of each server, those that decode last, and of all. All references, and what is pointed
  // to, must outlive it; `servers` itself need not. REQUIRES: at least one server, each with a front end; one
  // of computed passes.
  LiveFleet(const LiveConfig& config, const scheduler::Fleet& servers, const LiveRouters& routers,
            const WallClock& clock, const LiveDescriptions& descriptions);

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
  std::size_t size() const { return workers_.size(); }
  // Of all, and of one of several.
  LiveStatistics statistics() const;
  LiveStatistics statistics(std::size_t replica) const { return workers_[replica]->statistics.snapshot(); }
  std::uint64_t open_requests() const { return open_requests_; }

  // Steps the replicas until `go_on`, asked at least twenty times a second, says no. Throws what the executor
  // throws.
  void run(const std::function<bool()>& go_on);
  // After run(): tells all requests that still wait that nothing more comes, with `because` and 503.
  void abandon(const std::string& because);

 private:
  struct Open {
    std::shared_ptr<LiveRequest> listener;
    double sent = 0;            // seconds of the replica's clock
    scheduler::Split at = {};   // the same one twice where nothing is split
    std::uint32_t session = 0;  // its routing key; 0: none
    std::uint64_t length = 0;   // tokens of its prompt and, when it has started, its answer so far
    double held_until = 0;      // by the router: its first token, and what follows until then
    bool started = false;
    bool told_end = false;  // with its last tokens
  };

  // A request of a pair, until both servers have done with it: the client may have its answer, or want it no
  // more, before the one that prefills learns of that.
  struct OfPair {
    scheduler::Split at;
    double sent = 0;
    bool prefills = true, decodes = true;  // that server still has it
  };

  // Servers of one kind, and who chooses among them.
  struct Group final : scheduler::RoutedReplicas {
    Group(const LiveFleet& fleet, const scheduler::RouterConfig& config, std::size_t first, std::size_t size)
        : fleet(fleet),
          first(first),
          size(size),
          router(size > 1 ? scheduler::make_router(config, size) : nullptr) {}

    std::span<const std::uint64_t> in_flight() const override {
      return fleet.in_flight_.requests().subspan(first, size);
    }
    std::uint64_t sessions(std::size_t replica) const override {
      return fleet.in_flight_.sessions(first + replica);
    }
    Load load(std::size_t replica) const override {
      return fleet.workers_[first + replica]->replica.schedulers().load();
    }
    std::uint32_t choose(const scheduler::WorkloadRequest& request, double now) const {
      return static_cast<std::uint32_t>(first +
                                        (router == nullptr ? 0 : router->choose(request, now, *this)));
    }

    const LiveFleet& fleet;
    const std::size_t first, size;
    const std::unique_ptr<scheduler::Router> router;  // null: there is no choice
  };

  // A replica, and what it tells.
  struct Worker final : scheduler::ReplicaEvents {
    Worker(LiveFleet& fleet, std::uint32_t number, const scheduler::FleetServer& server,
           LiveDescription description)
        : fleet(fleet),
          number(number),
          replica(*server.config, *server.front_end, *server.executor, *this),
          statistics(std::move(description), fleet.clock_) {}

    // A request that even an idle server does not admit is refused: clients that may come later do not help
    // it.
    bool more_to_come() const override { return false; }
    bool wants_tokens() const override { return true; }
    void on_tokens(const scheduler::PassResult& result) override { fleet.on_tokens(*this, result); }
    void on_finished(const scheduler::Req& req, scheduler::RequestState state, const char* because,
                     double time) override {
      fleet.on_finished(*this, req, state, because, time);
    }
    void on_inter_token(double gap, std::uint32_t count) override {
      fleet.count(*this, [&](ServerStatistics& of) { of.on_inter_token(gap, count); });
    }
    void on_step(const scheduler::StepRecord& record, double gpu_seconds, bool) override {
      fleet.count(*this, [&](ServerStatistics& of) { of.on_step(record, gpu_seconds); });
    }
    void on_kv_message(const scheduler::KvMessage& message) override { fleet.on_kv_message(message); }
    // What `time` is for a replica that has been told of later ones.
    double event_time(double time) { return latest = std::max(latest, time); }

    LiveFleet& fleet;
    const std::uint32_t number;
    scheduler::Replica replica;
    ServerStatistics statistics;
    ServerStatistics::Lengths lengths;  // of its open requests
    double latest = 0;                  // time of the last call to it
  };

  // Counts what `worker` did: among all and, where there are others, among its own.
  template <typename Count>
  void count(Worker& worker, const Count& count) {
    count(statistics_);
    if (size() > 1) count(worker.statistics);
  }
  void on_tokens(Worker& worker, const scheduler::PassResult& result);
  void on_finished(Worker& worker, const scheduler::Req& req, scheduler::RequestState state,
                   const char* because, double time);
  void on_kv_message(const scheduler::KvMessage& message);
  // Whether the client's answer goes on: the server that prefills has done with `req`.
  bool only_prefilled(Worker& worker, const scheduler::Req& req, scheduler::RequestState state, double time);

  // Has `work` done on the replica's thread; after abandon() here and now.
  void command(std::function<void()> work);
  void take_commands();
  void admit(std::uint64_t id, scheduler::RequestPtr request, WallClock::Time sent,
             std::shared_ptr<LiveRequest> listener);
  scheduler::Split choose(const scheduler::WorkloadRequest& request, double sent);
  // Why it is not admitted, and the status that this is; null: it is.
  const char* refusal(const scheduler::WorkloadRequest& request, const scheduler::Split& at,
                      unsigned& status);
  void withdraw(std::uint32_t replica, std::uint64_t id);
  Worker& at(std::uint32_t replica) { return *workers_[replica]; }
  void flush_if_idle();
  void look_again(std::uint32_t replica) { due_.set(replica, workers_[replica]->replica.next_event_time()); }
  bool step();
  void look(bool at_leisure);
  void wait_until(double seconds);

  const LiveConfig config_;
  const WallClock& clock_;
  ServerStatistics statistics_;
  std::vector<std::unique_ptr<Worker>> workers_;
  const Group servers_;
  std::optional<Group> decoders_;  // where prefill and decode are split, as is what lies between them
  std::optional<scheduler::Pairs> pairs_;
  std::unordered_map<std::uint64_t, OfPair> of_pairs_;
  const double first_token_seconds_;  // that the router keeps first tokens back
  scheduler::InFlight in_flight_;
  scheduler::DueTimes due_;
  double routed_ = 0;  // time of the last choice
  double grace_ = 0;   // seconds of the replicas' clock that rounds are carried out after their time
  std::unordered_map<std::uint64_t, Open> open_;
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
