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

LiveFleet::LiveFleet(const LiveConfig& config, std::span<const scheduler::FleetServer> servers,
                     const scheduler::RouterConfig& router, const WallClock& clock,
                     const LiveDescriptions& descriptions)
    : config_(config),
      clock_(clock),
      statistics_(descriptions.all, clock),
      router_(servers.size() > 1 ? scheduler::make_router(router, servers.size()) : nullptr),
      first_token_seconds_(servers.size() > 1 ? router.first_token_seconds : 0),
      in_flight_(servers.size()),
      due_(servers.size()),
      grace_(kMostGrace * clock.speedup()) {
  for (std::size_t i = 0; i < servers.size(); ++i) {
    workers_.push_back(std::make_unique<Worker>(*this, servers[i], descriptions.each[i]));
    grace_ = std::min(grace_, servers[i].front_end->response_seconds / 2);
  }
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
    const std::uint32_t replica = found->second.replica;
    Worker& worker = *workers_[replica];
    // Of what has come since the round that is due next, that round learns.
    const double now = config_.computes ? worker.replica.now() : clock_.now();
    worker.replica.cancel(id, worker.event_time(std::min(now, worker.replica.next_event_time())));
    look_again(replica);
  });
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
  const std::uint32_t chosen = choose(*request, sent);
  Worker& worker = *workers_[chosen];
  if (config_.max_queued_requests > 0 &&
      worker.replica.schedulers().totals().waiting >= config_.max_queued_requests) {
    count(worker, [](ServerStatistics& of) { of.on_arrival(/*accepted=*/false); });
    deliveries_.add(sent, std::move(listener))
        .give_up(scheduler::RequestState::kRejected, "The request queue is full.");
    --open_requests_;
    return;
  }
  count(worker, [](ServerStatistics& of) { of.on_arrival(/*accepted=*/true); });
  const std::uint64_t length = request->prompt.size();
  worker.lengths.pending += length;
  ++in_flight_[chosen];
  open_.emplace(id, Open{.listener = std::move(listener), .sent = sent, .replica = chosen, .length = length});
  worker.replica.submit(
      {.id = id, .time = worker.event_time(sent), .early = false, .request = std::move(request)});
  look_again(chosen);
}

std::uint32_t LiveFleet::choose(const scheduler::WorkloadRequest& request, double sent) {
  if (router_ == nullptr) return 0;
  routed_ = std::max(routed_, sent);
  return static_cast<std::uint32_t>(router_->choose(request, routed_, *this));
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

void LiveFleet::on_tokens(Worker& worker, const scheduler::PassResult& result) {
  auto completed = result.finished.begin();  // in the order of the tokens
  for (const scheduler::RequestTokens& tokens : result.tokens) {
    Open& open = open_.at(tokens.req->id);
    const scheduler::Req& req = *tokens.req;
    const bool ends = completed != result.finished.end() && *completed == &req;
    if (!open.started) {
      open.started = true;
      if (!ends) open.held_until = result.time + first_token_seconds_;
      worker.lengths.pending -= open.length;
      worker.lengths.decoding += open.length;
      count(worker, [&](ServerStatistics& of) {
        of.on_first_token(result.time - open.sent);
        of.on_scheduled(req.first_scheduled_time - open.sent, req.input_len, req.cached_tokens);
      });
    }
    open.length += tokens.count;
    worker.lengths.decoding += tokens.count;
    TokenNews& news = deliveries_.add(std::max(result.time, open.held_until), open.listener);
    news.count = tokens.count;
    news.cached_tokens = req.cached_tokens;
    news.cached_host = req.cached_host;
    news.cached_storage = req.cached_storage;
    news.retractions = req.retractions;
    if (!req.output_ids.empty()) {
      const auto size = static_cast<std::ptrdiff_t>(req.output_len);
      news.ids.assign(req.output_ids.begin() + (size - tokens.count), req.output_ids.begin() + size);
    }
    // One event for the last token and the end.
    if (ends) {
      ++completed;
      open.told_end = true;
      news.end = req.cancelled ? scheduler::RequestState::kCancelled : scheduler::RequestState::kCompleted;
      news.latency = result.time - open.sent;
    }
  }
}

void LiveFleet::on_finished(Worker& worker, const scheduler::Req& req, scheduler::RequestState state,
                            const char* because, double time) {
  const auto found = open_.find(req.id);
  if (found == open_.end()) return;
  const double latency = time - found->second.sent;
  ServerStatistics::Lengths& lengths = worker.lengths;
  (found->second.started ? lengths.decoding : lengths.pending) -= found->second.length;
  count(worker, [&](ServerStatistics& of) { of.on_finished(req, state, latency); });
  --in_flight_[found->second.replica];
  if (!found->second.told_end) {
    TokenNews& news =
        deliveries_.add(std::max(time, found->second.held_until), std::move(found->second.listener));
    news.end = state;
    news.because = because == nullptr ? "" : because;
    news.latency = latency;
    news.cached_tokens = req.cached_tokens;
    news.cached_host = req.cached_host;
    news.cached_storage = req.cached_storage;
    news.retractions = req.retractions;
  }
  open_.erase(found);
  --open_requests_;
}

}  // namespace tpsim::launch
