#include "launch/serve/live/live_fleet.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tpsim::launch {
namespace {

constexpr double kNever = scheduler::RequestSource::kNever;
constexpr std::chrono::milliseconds kAskEvery{50};
// Of the wall: more than reading a request takes, less than anybody notices.
constexpr double kMostGrace = 0.4e-3;

}  // namespace

LiveFleet::LiveFleet(const LiveConfig& config, const scheduler::Fleet& servers, const LiveRouters& routers,
                     const WallClock& clock, const LiveDescriptions& descriptions)
    : config_(config),
      clock_(clock),
      statistics_(descriptions.all, clock),
      servers_(*this, routers.servers, 0, servers.servers.size()),
      first_token_seconds_(servers.size() > 1 ? routers.servers.first_token_seconds : 0),
      in_flight_(servers.size(), routers.servers.counts_sessions() || routers.decode.counts_sessions()),
      due_(servers.size()),
      grace_(kMostGrace * clock.speedup()) {
  for (const std::vector<scheduler::FleetServer>* side : {&servers.servers, &servers.decode}) {
    for (const scheduler::FleetServer& server : *side) {
      const auto number = static_cast<std::uint32_t>(workers_.size());
      workers_.push_back(std::make_unique<Worker>(*this, number, server, descriptions.each[number]));
      grace_ = std::min(grace_, server.front_end->response_seconds / 2);
    }
  }
  if (servers.decode.empty()) return;
  decoders_.emplace(*this, routers.decode, servers_.size, servers.decode.size());
  pairs_.emplace(servers.link, servers.servers, servers.decode);
}

std::uint64_t LiveFleet::submit(scheduler::RequestPtr request, WallClock::Time sent,
                                std::shared_ptr<LiveRequest> listener) {
  const std::uint64_t id = next_id_++;
  ++open_requests_;
  command([this, id, request = std::move(request), sent, listener = std::move(listener)] {
    admit(id, request, sent, listener);
  });
  return id;
}

void LiveFleet::cancel(std::uint64_t id) {
  command([this, id] {
    if (ended_) return;
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    const scheduler::Split at = found->second.at;
    if (at.prefill != at.decode) withdraw(at.prefill, id);
    withdraw(at.decode, id);
  });
}

void LiveFleet::withdraw(std::uint32_t replica, std::uint64_t id) {
  Worker& worker = at(replica);
  // Of what has come since the round that is due next, that round learns.
  const double now = config_.computes ? worker.replica.now() : clock_.now();
  worker.replica.cancel(id, worker.event_time(std::min(now, worker.replica.next_event_time())));
  look_again(replica);
}

void LiveFleet::flush_cache(std::function<void(bool)> done) {
  command([this, done = std::move(done)] {
    if (!ended_ && open_.empty())
      flushes_.push_back(done);
    else
      done(false);
  });
}

LiveStatistics LiveFleet::statistics() const {
  LiveStatistics live = statistics_.snapshot();
  for (std::size_t i = 0; size() > 1 && i < size(); ++i)
    live.replicas.push_back(workers_[i]->statistics.snapshot(/*with_samples=*/false));
  return live;
}

void LiveFleet::command(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      commands_.push_back(std::move(work));
      if (commands_.size() == 1) changed_.notify_one();
      return;
    }
  }
  work();
}

void LiveFleet::take_commands() {
  std::vector<std::function<void()>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(commands_);
  }
  for (const std::function<void()>& work : taken) work();
}

void LiveFleet::admit(std::uint64_t id, scheduler::RequestPtr request, WallClock::Time sent_at,
                      std::shared_ptr<LiveRequest> listener) {
  if (ended_) {
    --open_requests_;
    WireThread& thread = listener->thread();
    thread.post([this, listener = std::move(listener)] {
      TokenNews news;
      news.give_up(scheduler::RequestState::kUnfinished, because_);
      listener->on_news(news);
    });
    return;
  }
  // Of passes that are computed, the replica's clock only counts what they took.
  const double sent = config_.computes ? workers_.front()->replica.now() : clock_.seconds_at(sent_at);
  const scheduler::Split chosen = choose(*request, sent);
  const bool split = chosen.prefill != chosen.decode;
  unsigned status = 0;
  const char* const because = refusal(*request, chosen, status);
  count(at(chosen.decode), [&](ServerStatistics& of) { of.on_arrival(because == nullptr); });
  if (split) at(chosen.prefill).statistics.on_arrival(because == nullptr);
  if (because != nullptr) {
    TokenNews& news = deliveries_.add(sent, std::move(listener));
    news.give_up(scheduler::RequestState::kRejected, because);
    news.status = status;
    --open_requests_;
    return;
  }
  const std::uint64_t length = request->prompt.size();
  at(chosen.prefill).lengths.pending += length;
  open_.emplace(id, Open{.listener = std::move(listener),
                         .sent = sent,
                         .at = chosen,
                         .session = request->session,
                         .length = length});
  if (split) of_pairs_[id] = {.at = chosen, .sent = sent};
  const auto give = [&](std::uint32_t replica) {
    in_flight_.add(replica, request->session);
    Worker& worker = at(replica);
    worker.replica.submit({.id = id, .time = worker.event_time(sent), .early = false, .request = request});
    look_again(replica);
  };
  give(chosen.prefill);
  if (split) give(chosen.decode);
}

const char* LiveFleet::refusal(const scheduler::WorkloadRequest& request, const scheduler::Split& chosen,
                               unsigned& status) {
  status = 503;
  if (config_.max_queued_requests > 0 &&
      at(chosen.prefill).replica.schedulers().totals().waiting >= config_.max_queued_requests)
    return "The request queue is full.";
  status = 400;
  for (const std::uint32_t side : {chosen.prefill, chosen.decode})
    if (const char* because = pairs_ ? at(side).replica.side().refusal(request) : nullptr) return because;
  return nullptr;
}

scheduler::Split LiveFleet::choose(const scheduler::WorkloadRequest& request, double sent) {
  routed_ = std::max(routed_, sent);
  const std::uint32_t chosen = servers_.choose(request, routed_);
  return {chosen, decoders_ ? decoders_->choose(request, routed_) : chosen};
}

void LiveFleet::flush_if_idle() {
  if (flushes_.empty() || due_.time() != kNever) return;
  for (const auto& worker : workers_)
    if (open_.empty()) worker->replica.flush_cache();
  for (const auto& flushed : flushes_) flushed(open_.empty());
  flushes_.clear();
}

// Returns whether there was a round to carry out.
bool LiveFleet::step() {
  const double due = due_.time();
  if (due == kNever) return false;
  if (!config_.computes) {
    const double now = clock_.now();
    if (due + grace_ > now) return false;
    statistics_.on_lag(due + grace_, now);
  }
  const std::uint32_t first = due_.first();
  workers_[first]->event_time(due);
  workers_[first]->replica.advance();
  look_again(first);
  return true;
}

void LiveFleet::run(const std::function<bool()>& go_on) {
  // Timers fire when they are due, not up to 50 us later.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  auto asked = std::chrono::steady_clock::now();
  while (true) {
    take_commands();
    const bool stepped = step();
    if (config_.computes)
      deliveries_.hand_over_now();
    else
      deliveries_.hand_over([this](double time) { return clock_.time_at(time); });
    flush_if_idle();
    look(!stepped);
    if (const auto now = std::chrono::steady_clock::now(); !stepped || now - asked >= kAskEvery) {
      asked = now;
      if (!go_on()) return;
    }
    if (!stepped) wait_until(due_.time() + grace_);
  }
}

void LiveFleet::look(bool at_leisure) {
  if (!statistics_.wants_to_look(at_leisure)) return;
  std::vector<const scheduler::DataParallelGroup*> schedulers;
  ServerStatistics::Lengths lengths;
  for (const auto& worker : workers_) {
    schedulers.push_back(&worker->replica.schedulers());
    lengths.pending += worker->lengths.pending;
    lengths.decoding += worker->lengths.decoding;
    if (size() > 1) worker->statistics.look(std::span(schedulers).last(1), worker->lengths);
  }
  statistics_.look(schedulers, lengths);
}

// Or until somebody wants something, or it is time to ask whether to go on.
void LiveFleet::wait_until(double seconds) {
  auto wake = std::chrono::steady_clock::now() + kAskEvery;
  if (seconds < clock_.seconds_at(wake)) wake = clock_.time_at(seconds);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, wake, [this] { return !commands_.empty(); });
}

void LiveFleet::abandon(const std::string& because) {
  {
    const std::lock_guard lock(mutex_);
    because_ = because;
    ended_ = true;
  }
  take_commands();
  deliveries_.hand_over_now();
  for (auto& [id, open] : open_) {
    deliveries_.add(0, std::move(open.listener)).give_up(scheduler::RequestState::kUnfinished, because);
    --open_requests_;
  }
  open_.clear();
  for (const auto& flushed : flushes_) flushed(false);
  flushes_.clear();
  deliveries_.hand_over_now();
}

}  // namespace tpsim::launch
