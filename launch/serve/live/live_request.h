// A request whose client waits for its tokens, and the clock that it waits by.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/serve/wire/exchange.h"
#include "scheduler/records.h"

namespace tpsim::launch {

// The replica's clock on the wall: seconds since the server began, that pass `speedup` times as fast.
class WallClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit WallClock(double speedup = 1, Time start = std::chrono::steady_clock::now())
      : speedup_(speedup), start_(start) {}

  double speedup() const { return speedup_; }
  double seconds_at(Time time) const {
    return std::chrono::duration<double>(time - start_).count() * speedup_;
  }
  double now() const { return seconds_at(std::chrono::steady_clock::now()); }
  // When the wall is there. REQUIRES: `seconds` lies within centuries.
  Time time_at(double seconds) const {
    return start_ +
           std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds / speedup_));
  }

 private:
  double speedup_;
  Time start_;
};

// What one pass gave to a request, or how it ended, or both.
struct TokenNews {
  std::uint32_t count = 0;          // new tokens
  std::vector<std::uint32_t> ids;   // numeric execution: which; otherwise those that the request named
  std::uint32_t cached_tokens = 0;  // of its prompt, found in the cache
  std::uint32_t cached_host = 0, cached_storage = 0;  // of them, from there
  std::uint32_t retractions = 0;
  std::optional<scheduler::RequestState> end;
  // Of a refused one: the sentence, and the HTTP status that it amounts to.
  std::string because;
  unsigned status = 400;
  double latency = 0;     // seconds of the replica's clock from its sending to this
  WallClock::Time due{};  // when it is to be told

  // The end of a request that the server does not serve: 503.
  void give_up(scheduler::RequestState state, const std::string& sentence) {
    end = state;
    because = sentence;
    status = 503;
  }
};

class LiveRequest {
 public:
  virtual ~LiveRequest() = default;
  // The thread that hears the news; the same throughout.
  virtual WireThread& thread() const = 0;
  // On that thread, when the time has come. Nothing follows the end.
  virtual void on_news(const TokenNews& news) = 0;
};

}  // namespace tpsim::launch
