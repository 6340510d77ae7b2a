// What lies between a client and the scheduler: SGLang's HTTP server and tokenizer manager, one process that
// takes requests one by one. Requests sent together reach the scheduler one after another, so the first
// prefill of a burst holds one and the next what has come meanwhile; an answer takes its way back.
//
// The times are those of a request in a queue with one server: `pass_seconds` for everybody, side by side,
// and `request_seconds` and `token_seconds` (of the prompt) in turn. All zero: requests are where they are
// sent at once, as in comparisons with SGLang's scheduler alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "scheduler/config.h"
#include "scheduler/load.h"

namespace tpsim::scheduler {

class FrontEnd {
 public:
  explicit FrontEnd(const FrontEndConfig& config) : config_(config) {}

  // A request with a prompt of `tokens` is sent at `sent.time`, not before the one of the last call.
  void send(const LoadGenerator::Sent& sent, std::uint64_t tokens) {
    free_ = std::max(free_, sent.time) + config_.request_seconds +
            config_.token_seconds * static_cast<double>(tokens);
    under_way_.push_back({free_ + config_.pass_seconds, sent});
  }
  // When the next one reaches the scheduler; LoadGenerator::kNever where none is under way.
  double next_time() const { return under_way_.empty() ? LoadGenerator::kNever : under_way_.front().arrival; }
  // REQUIRES: next_time() is not kNever.
  LoadGenerator::Sent pop() {
    const LoadGenerator::Sent sent = under_way_.front().sent;
    under_way_.pop_front();
    return sent;
  }
  // When the client sees what the scheduler has at `time`.
  double seen(double time) const { return time + config_.response_seconds; }

 private:
  struct UnderWay {
    double arrival;
    LoadGenerator::Sent sent;
  };

  FrontEndConfig config_;
  std::deque<UnderWay> under_way_;
  double free_ = 0;  // when it is done with what was sent
};

}  // namespace tpsim::scheduler
