// What lies between a client and the scheduler: SGLang's HTTP server and tokenizer manager, one process that
// takes requests one by one. Requests sent together reach the scheduler one after another, so the first
// prefill of a burst holds one and the next what has come meanwhile. Answers go back through the same process
// a token at a time: where it cannot keep up with the scheduler, clients see tokens later and later.
//
// Each way is a queue with one server. To the scheduler: `pass_seconds` for everybody, side by side, and
// `request_seconds` and `token_seconds` (of the prompt) in turn, and what preparing a request's images takes.
// A client may need time of its own before it sends one, and do so one by one, too (`client_seconds` and
// `client_token_seconds`): the request's clock starts behind it.
// Back: `stream_seconds` for each request that got something, in turn, and `response_seconds`. All zero:
// requests are where they are sent at once, as in comparisons with SGLang's scheduler alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "scheduler/config.h"
#include "scheduler/request_source.h"

namespace tpsim::scheduler {

class FrontEnd {
 public:
  explicit FrontEnd(const FrontEndConfig& config) : config_(config) {}

  // A request with a prompt of `tokens` is due at `sent.time`, not before the one of the last call; its
  // images take `image_seconds`.
  void send(RequestSource::Sent sent, std::uint64_t tokens, double image_seconds = 0) {
    const auto length = static_cast<double>(tokens);
    const double client = config_.client_seconds + config_.client_token_seconds * length;
    if (client > 0) sent.time = client_free_ = std::max(client_free_, sent.time) + client;
    free_ = std::max(free_, sent.time) + config_.request_seconds + config_.token_seconds * length;
    if (config_.prepares_images) free_ += image_seconds;
    under_way_.push_back({free_ + config_.pass_seconds, std::move(sent)});
  }
  // When the next one reaches the scheduler; RequestSource::kNever where none is under way.
  double next_time() const { return under_way_.empty() ? RequestSource::kNever : under_way_.front().arrival; }
  // With the time at which it was sent. REQUIRES: next_time() is not kNever.
  RequestSource::Sent pop() {
    RequestSource::Sent sent = std::move(under_way_.front().sent);
    under_way_.pop_front();
    return sent;
  }
  // Takes request `id` out, where it is still under way; the others come when they would have.
  std::optional<RequestSource::Sent> withdraw(std::uint64_t id) {
    const auto at = std::find_if(under_way_.begin(), under_way_.end(),
                                 [id](const UnderWay& request) { return request.sent.id == id; });
    if (at == under_way_.end()) return std::nullopt;
    RequestSource::Sent sent = std::move(at->sent);
    under_way_.erase(at);
    return sent;
  }
  // The scheduler has their first token for `first` requests and another one for `later` at `time`, not
  // before the time of the last call. When their clients see it.
  double stream(double time, std::uint64_t first, std::uint64_t later) {
    const double messages = static_cast<double>(first) + static_cast<double>(later) / config_.stream_interval;
    streamed_ = std::max(streamed_, time) + config_.stream_seconds * messages;
    return seen(time);
  }
  // When a client sees what leaves the scheduler at `time` behind all that was streamed.
  double seen(double time) const { return std::max(time, streamed_) + config_.response_seconds; }

  // State of a checkpoint (proto/base/archive.h).
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(under_way_, client_free_, free_, streamed_);
  }

 private:
  struct UnderWay {
    double arrival;
    RequestSource::Sent sent;

    template <typename Archive>
    void serialize(Archive& archive) {
      archive(arrival, sent);
    }
  };

  FrontEndConfig config_;
  std::deque<UnderWay> under_way_;
  double client_free_ = 0;
  double free_ = 0;      // when it is done with what was sent
  double streamed_ = 0;  // and with what was streamed
};

}  // namespace tpsim::scheduler
