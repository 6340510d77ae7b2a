// What lies between a client and the scheduler: SGLang's HTTP server and tokenizer manager, one process that
// takes requests one by one. Requests sent together reach the scheduler one after another, so the first
// prefill of a burst holds one and the next what has come meanwhile. Answers go back through the same process
// a token at a time: where it cannot keep up with the scheduler, clients see tokens later and later.
//
// Each way is a queue with one server. To the scheduler: `pass_seconds` for each, side by side, and
// `request_seconds` and `token_seconds` (of the prompt) in turn, and what preparing a request's images takes.
// A client may need time of its own before it sends one, and do so one by one, too (`client_seconds` and
// `client_token_seconds`): the request's clock starts after it.
//
// The server is one event loop: requests that are there together take turns, a step of each at a time, and
// reach the scheduler together, `dispatch_seconds` apart, when the loop is done with all of them; those that
// come meanwhile are the next to take turns. (A burst whose requests wait for each other so: its first
// prefill holds one, the next a few, the one after it all others.) `dispatch_seconds` 0: one by one instead.
// `connections` of such a client are open when the run begins: a request beyond them opens another one, and
// leaves when those that were due with it have all been made, for the client is one event loop, too.
// Back: `stream_seconds` for each request that got something, in turn, `copy_seconds` for each token that its
// answer had before, and `response_seconds`. Answers wait for the loop where it prepares images, of one
// request after another without a look at its sockets (process_mm_data_async() of SGLang 0.5.12 never
// yields). All zero: requests are where they are sent at once, and not `by_socket`: seen without regard to
// launches, as in comparisons with SGLang's scheduler alone (shared/differential gives it passes of no
// launch). `workers` such processes share the requests: the one that is free first takes the next. Answers
// still pass one process (MultiTokenizerRouter of managers/multi_tokenizer_mixin.py), and wait for no other's
// images.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/request_source.h"

namespace tpsim::scheduler {

class FrontEnd {
 public:
  explicit FrontEnd(const FrontEndConfig& config) : config_(config), workers_(config.workers) {}

  // A request with a prompt of `tokens` is due at `sent.time`, not before the one of the last call; its
  // images take `image_seconds`.
  void send(RequestSource::Sent sent, std::uint64_t tokens, double image_seconds = 0) {
    const auto length = static_cast<double>(tokens);
    const double due = sent.time;
    const double client = config_.client_seconds + config_.client_token_seconds * length;
    if (client > 0) sent.time = client_free_ = std::max(client_free_, sent.time) + client;
    const double images = config_.prepares_images ? image_seconds : 0;
    const double own = config_.request_seconds + config_.token_seconds * length + images;
    if (config_.dispatch_seconds > 0) {
      wait(due, own, std::move(sent));
      return;
    }
    Worker& worker = *std::ranges::min_element(workers_, {}, &Worker::free);
    worker.free = std::max(worker.free, sent.time) + own;
    if (images > 0) {
      if (worker.turn_end <= sent.time)
        worker.turn_end = worker.blocked > sent.time ? worker.blocked : worker.free;
      worker.blocked = worker.free;
    }
    UnderWay next = {worker.free + config_.pass_seconds, std::move(sent)};
    const auto at = std::ranges::upper_bound(under_way_, next.arrival, {}, &UnderWay::arrival);
    under_way_.insert(at, std::move(next));
  }
  // A request that was sent has ended, and its connection is another one's to take.
  void leave() { in_flight_ -= in_flight_ > 0 ? 1 : 0; }
  // When the next one reaches the scheduler; RequestSource::kNever where none is under way.
  double next_time() const {
    if (!under_way_.empty()) return under_way_.front().arrival;
    if (waiting_.empty()) return RequestSource::kNever;
    const double start = turn_time();
    double end = start;
    std::uint64_t others = 0;
    for (const Waiting& request : waiting_) {
      if (request.ready > start) continue;
      end += request.seconds;
      ++others;
    }
    return std::max(start, end - config_.dispatch_seconds * static_cast<double>(others - 1)) +
           config_.pass_seconds;
  }
  // With the time at which it was sent. REQUIRES: next_time() is not kNever.
  RequestSource::Sent pop() {
    if (under_way_.empty()) take_turns();
    RequestSource::Sent sent = std::move(under_way_.front().sent);
    under_way_.pop_front();
    return sent;
  }
  // Takes request `id` out, where it is still under way; the others come when they would have.
  std::optional<RequestSource::Sent> withdraw(std::uint64_t id) {
    std::optional<RequestSource::Sent> sent;
    const auto take_from = [&](auto& queue) {
      const auto at = std::ranges::find(queue, id, [](const auto& request) { return request.sent.id; });
      if (at == queue.end()) return;
      sent = std::move(at->sent);
      queue.erase(at);
    };
    take_from(under_way_);
    if (!sent) take_from(waiting_);
    return sent;
  }
  // The scheduler has their first token for `first` requests and another one for `later`, whose answers had
  // `answered` tokens together, at `time`, not before the time of the last call. When their clients see it.
  double stream(double time, std::uint64_t first, std::uint64_t later, std::uint64_t answered = 0) {
    const double messages = static_cast<double>(first) + static_cast<double>(later) / config_.stream_interval;
    const double copied = static_cast<double>(answered) / config_.stream_interval;
    streamed_ = std::max(streamed_, looked_at(time)) + config_.stream_seconds * messages +
                config_.copy_seconds * copied;
    return seen(time);
  }
  // When a client sees what leaves the scheduler at `time` after all that was streamed.
  double seen(double time) const { return std::max(looked_at(time), streamed_) + config_.response_seconds; }

  auto state() {
    return std::tie(under_way_, waiting_, config_.connections, in_flight_, client_free_, workers_, streamed_);
  }

 private:
  struct UnderWay {
    double arrival;
    RequestSource::Sent sent;

    auto state() { return std::tie(arrival, sent); }
  };
  struct Worker {
    double free = 0;  // when it is done with what was sent
    // When it looks at its sockets: after what it took up together, and after the last request with images.
    double turn_end = 0, blocked = 0;

    auto state() { return std::tie(free, turn_end, blocked); }
  };
  // One that has not had its turn. `due`: of a connection that its client opens, when it was to be sent.
  struct Waiting {
    double ready, seconds;
    std::optional<double> due;
    RequestSource::Sent sent;

    auto state() { return std::tie(ready, seconds, due, sent); }
  };

  void wait(double due, double own, RequestSource::Sent sent) {
    // Connections are opened one after another, when the client has made all that was due.
    double opened = sent.time;
    for (Waiting& request : waiting_)
      if (request.due == due) request.ready = opened += config_.connect_seconds;
    Waiting request{sent.time, own, {}, std::move(sent)};
    if (++in_flight_ > config_.connections) {
      config_.connections = in_flight_;
      request.due = due;
      request.ready = opened + config_.connect_seconds;
    }
    waiting_.push_back(std::move(request));
  }
  // When a worker sees what comes from the scheduler at `time`.
  double looked_at(double time) const {
    const Worker& worker = *std::ranges::min_element(workers_, {}, &Worker::free);
    return time < worker.turn_end ? worker.turn_end : std::max(time, worker.blocked);
  }
  // When the loop begins with those that wait. REQUIRES: some do.
  double turn_time() const {
    double ready = RequestSource::kNever;
    for (const Waiting& request : waiting_) ready = std::min(ready, request.ready);
    return std::max(workers_.front().free, ready);
  }
  void take_turns() {
    const double start = turn_time();
    const auto rest = std::stable_partition(
        waiting_.begin(), waiting_.end(), [start](const Waiting& request) { return request.ready <= start; });
    double& free = workers_.front().free;
    free = start;
    for (auto at = waiting_.begin(); at != rest; ++at) free += at->seconds;
    auto others = static_cast<double>(rest - waiting_.begin());
    for (auto at = waiting_.begin(); at != rest; ++at) {
      const double turn = std::max(start, free - config_.dispatch_seconds * --others);
      under_way_.push_back({turn + config_.pass_seconds, std::move(at->sent)});
    }
    waiting_.erase(waiting_.begin(), rest);
  }

  FrontEndConfig config_;
  std::deque<UnderWay> under_way_;
  std::deque<Waiting> waiting_;
  std::uint32_t in_flight_ = 0;
  double client_free_ = 0;
  std::vector<Worker> workers_;  // several only where requests pass one by one
  double streamed_ = 0;          // and with what was streamed
};

}  // namespace tpsim::scheduler
