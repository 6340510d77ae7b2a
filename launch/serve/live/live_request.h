// A request whose client waits for its tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/serve/live/wall_clock.h"
#include "launch/serve/wire/exchange.h"
#include "scheduler/records.h"

namespace tpsim::launch {

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
