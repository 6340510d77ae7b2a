#include "launch/serve/live/live_replica.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace tpsim::launch {
namespace {

constexpr double kNever = scheduler::RequestSource::kNever;
constexpr std::chrono::milliseconds kAskEvery{50};
// Of the wall: more than reading a request takes, less than anybody notices.
constexpr double kMostGrace = 0.4e-3;
// Of the wall: news are with the threads that tell them so long before they are due, which spares each a
// wake-up on its way.
constexpr double kAhead = 5e-3;

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
  command({.id = id,
           .request = std::move(request),
           .sent = sent,
           .listener = std::move(listener),
           .flushed = {}});
  return id;
}

void LiveReplica::cancel(std::uint64_t id) {
  command({.id = id, .request = {}, .listener = {}, .flushed = {}});
}

void LiveReplica::flush_cache(std::function<void(bool)> done) {
  command({.request = {}, .listener = {}, .flushed = std::move(done)});
}

void LiveReplica::command(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      commands_.push_back(std::move(command));
      if (commands_.size() == 1) changed_.notify_one();
      return;
    }
  }
  if (command.request != nullptr) --open_requests_;
  if (command.listener == nullptr) return;
  WireThread& thread = command.listener->thread();
  thread.post([listener = std::move(command.listener)] {
    TokenNews news;
    news.give_up(scheduler::RequestState::kUnfinished, "The server has stopped.");
    listener->on_news(news);
  });
}

void LiveReplica::take_commands() {
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(commands_);
  }
  for (Command& command : taken_) {
    if (command.request != nullptr) {
      admit(command);
    } else if (command.flushed) {
      if (open_.empty())
        flushes_.push_back(std::move(command.flushed));
      else
        command.flushed(false);
    } else {
      // Of what has come since the round that is due next, that round learns.
      const double now = config_.computes ? replica_.now() : clock_.now();
      replica_.cancel(command.id, event_time(std::min(now, replica_.next_event_time())));
    }
  }
  taken_.clear();
}

void LiveReplica::admit(Command& command) {
  // Of passes that are computed, the replica's clock only counts what they took.
  const double sent = config_.computes ? replica_.now() : clock_.seconds_at(command.sent);
  if (config_.max_queued_requests > 0 &&
      replica_.schedulers().totals().waiting >= config_.max_queued_requests) {
    statistics_.on_queue_full();
    deliveries_.add(sent, std::move(command.listener))
        .give_up(scheduler::RequestState::kRejected, "The request queue is full.");
    --open_requests_;
    return;
  }
  statistics_.on_accepted();
  lengths_.pending += command.request->prompt.size();
  open_.emplace(
      command.id,
      Open{.listener = std::move(command.listener), .sent = sent, .length = command.request->prompt.size()});
  replica_.submit(
      {.id = command.id, .time = event_time(sent), .early = false, .request = std::move(command.request)});
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
      deliveries_.hand_over(clock_.now() + kAhead * clock_.speedup(), clock_);
    flush_if_idle();
    statistics_.look(replica_.schedulers(), lengths_, !stepped);
    if (const auto now = std::chrono::steady_clock::now(); !stepped || now - asked >= kAskEvery) {
      asked = now;
      if (!go_on()) return;
    }
    if (!stepped)
      wait_until(
          std::min(replica_.next_event_time() + grace_, deliveries_.next_time() - kAhead * clock_.speedup()));
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
    ended_ = true;
    taken_.swap(commands_);
  }
  deliveries_.hand_over_now();
  const auto tell = [&](std::shared_ptr<LiveRequest> listener) {
    deliveries_.add(0, std::move(listener)).give_up(scheduler::RequestState::kUnfinished, because);
    --open_requests_;
  };
  for (auto& [id, open] : open_) tell(std::move(open.listener));
  open_.clear();
  for (Command& command : taken_) {
    if (command.listener != nullptr) tell(std::move(command.listener));
    if (command.flushed) command.flushed(false);
  }
  taken_.clear();
  for (const auto& flushed : flushes_) flushed(false);
  flushes_.clear();
  deliveries_.hand_over_now();
}

// A request that even an idle server does not admit is refused: clients that may come later do not help it.
bool LiveReplica::more_to_come() const { return false; }

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
    news.retractions = req.retractions;
  }
  open_.erase(found);
  --open_requests_;
}

void LiveReplica::on_step(const scheduler::StepRecord& record, double gpu_seconds, bool) {
  statistics_.on_step(record, gpu_seconds);
}

}  // namespace tpsim::launch
