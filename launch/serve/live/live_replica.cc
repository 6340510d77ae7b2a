#include "launch/serve/live/live_replica.h"

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

LiveReplica::LiveReplica(const LiveConfig& config, const scheduler::SchedulerConfig& scheduler,
                         const scheduler::FrontEndConfig& front_end, scheduler::Executor& executor,
                         const WallClock& clock, LiveDescription description)
    : config_(config),
      clock_(clock),
      replica_(scheduler, front_end, executor, *this),
      statistics_(std::move(description), clock),
      grace_(std::min(front_end.response_seconds / 2, kMostGrace * clock.speedup())) {}

std::uint64_t LiveReplica::submit(scheduler::RequestPtr request, WallClock::Time sent,
                                  std::shared_ptr<LiveRequest> listener) {
  const std::uint64_t id = next_id_++;
  ++open_requests_;
  command([this, id, request = std::move(request), sent, listener = std::move(listener)] {
    admit(id, request, sent, listener);
  });
  return id;
}

void LiveReplica::cancel(std::uint64_t id) {
  command([this, id] {
    if (ended_) return;
    // Of what has come since the round that is due next, that round learns.
    const double now = config_.computes ? replica_.now() : clock_.now();
    replica_.cancel(id, event_time(std::min(now, replica_.next_event_time())));
  });
}

void LiveReplica::flush_cache(std::function<void(bool)> done) {
  command([this, done = std::move(done)] {
    if (!ended_ && open_.empty())
      flushes_.push_back(done);
    else
      done(false);
  });
}

void LiveReplica::command(std::function<void()> work) {
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

void LiveReplica::take_commands() {
  std::vector<std::function<void()>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(commands_);
  }
  for (const std::function<void()>& work : taken) work();
}

void LiveReplica::admit(std::uint64_t id, scheduler::RequestPtr request, WallClock::Time sent_at,
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
  const double sent = config_.computes ? replica_.now() : clock_.seconds_at(sent_at);
  if (config_.max_queued_requests > 0 &&
      replica_.schedulers().totals().waiting >= config_.max_queued_requests) {
    statistics_.on_arrival(/*accepted=*/false);
    deliveries_.add(sent, std::move(listener))
        .give_up(scheduler::RequestState::kRejected, "The request queue is full.");
    --open_requests_;
    return;
  }
  statistics_.on_arrival(/*accepted=*/true);
  const std::uint64_t length = request->prompt.size();
  lengths_.pending += length;
  open_.emplace(id, Open{.listener = std::move(listener), .sent = sent, .length = length});
  replica_.submit({.id = id, .time = event_time(sent), .early = false, .request = std::move(request)});
}

void LiveReplica::flush_if_idle() {
  if (flushes_.empty() || replica_.next_event_time() != kNever) return;
  if (open_.empty()) replica_.flush_cache();
  for (const auto& flushed : flushes_) flushed(open_.empty());
  flushes_.clear();
}

// Returns whether there was a round to carry out.
bool LiveReplica::step() {
  const double due = replica_.next_event_time();
  if (due == kNever) return false;
  if (!config_.computes) {
    const double now = clock_.now();
    if (due + grace_ > now) return false;
    statistics_.on_lag(due + grace_, now);
  }
  event_time(due);
  replica_.advance();
  return true;
}

void LiveReplica::run(const std::function<bool()>& go_on) {
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
    statistics_.look(replica_.schedulers(), lengths_, !stepped);
    if (const auto now = std::chrono::steady_clock::now(); !stepped || now - asked >= kAskEvery) {
      asked = now;
      if (!go_on()) return;
    }
    if (!stepped) wait_until(replica_.next_event_time() + grace_);
  }
}

// Or until somebody wants something, or it is time to ask whether to go on.
void LiveReplica::wait_until(double seconds) {
  auto wake = std::chrono::steady_clock::now() + kAskEvery;
  if (seconds < clock_.seconds_at(wake)) wake = clock_.time_at(seconds);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, wake, [this] { return !commands_.empty(); });
}

void LiveReplica::abandon(const std::string& because) {
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

void LiveReplica::on_tokens(const scheduler::PassResult& result) {
  auto completed = result.finished.begin();  // in the order of the tokens
  for (const scheduler::RequestTokens& tokens : result.tokens) {
    Open& open = open_.at(tokens.req->id);
    const scheduler::Req& req = *tokens.req;
    if (!open.started) {
      open.started = true;
      lengths_.pending -= open.length;
      lengths_.decoding += open.length;
      statistics_.on_first_token(result.time - open.sent);
      statistics_.on_scheduled(req.first_scheduled_time - open.sent, req.input_len, req.cached_tokens);
    }
    open.length += tokens.count;
    lengths_.decoding += tokens.count;
    TokenNews& news = deliveries_.add(result.time, open.listener);
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
    if (completed != result.finished.end() && *completed == &req) {
      ++completed;
      open.told_end = true;
      news.end = req.cancelled ? scheduler::RequestState::kCancelled : scheduler::RequestState::kCompleted;
      news.latency = result.time - open.sent;
    }
  }
}

void LiveReplica::on_finished(const scheduler::Req& req, scheduler::RequestState state, const char* because,
                              double time) {
  const auto found = open_.find(req.id);
  if (found == open_.end()) return;
  const double latency = time - found->second.sent;
  (found->second.started ? lengths_.decoding : lengths_.pending) -= found->second.length;
  statistics_.on_finished(req, state, latency);
  if (!found->second.told_end) {
    TokenNews& news = deliveries_.add(time, std::move(found->second.listener));
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
