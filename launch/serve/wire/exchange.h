// One request on a connection and its answer, as its answerer sees it.
//
// An exchange belongs to one of the server's threads: everything here is called on it, and calls back on it.
// What other threads have for it goes through WireThread::post(). An answer is either respond(), or
// begin_stream(), write()s and end_stream().
//
// A slow reader holds up nobody: an answerer with more to come calls write() when all before it was taken
// (ready()), so that what waits for a client is what its answer has become, never a queue of events.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launch/serve/wire/http_message.h"

namespace tpsim::launch {

// One of the threads that connections live on.
class WireThread {
 public:
  virtual ~WireThread() = default;
  // Runs `work` on this thread soon; works of one poster keep their order. Any thread may call it. After the
  // server has stopped, nothing happens.
  virtual void post(std::function<void()> work) = 0;
  // As post(), not before `due`. Works that are due at different times run in the order of those, also where
  // the thread is late; of the same time in the order of the calls.
  virtual void post_at(std::chrono::steady_clock::time_point due, std::function<void()> work) = 0;
  virtual std::size_t index() const = 0;
};

class ExchangeListener {
 public:
  virtual ~ExchangeListener() = default;
  // The client took what was written; the stream is ready() again.
  virtual void on_ready() {}
  // The client closed its side, or the connection broke, before the answer was whole. Nothing is called after
  // it.
  virtual void on_gone() = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual WireThread& thread() const = 0;
  // Hears of ready() and of the end of the client; held until the answer is whole or the client gone.
  virtual void listen(std::shared_ptr<ExchangeListener> listener) = 0;
  // The whole answer. REQUIRES: nothing was answered yet.
  virtual void respond(const HttpResponse& response) = 0;
  // The head of a 200 answer that follows piece by piece; `headers` besides. REQUIRES: nothing was answered
  // yet.
  virtual void begin_stream(std::string_view content_type, const HttpHeaders& headers) = 0;
  // Whether all that was written has been taken by the client's socket.
  virtual bool ready() const = 0;
  // A piece, after all that was not taken yet: a first or a last one, or ready(). REQUIRES: begin_stream().
  // An empty one does nothing.
  virtual void write(std::string_view piece) = 0;
  // After the last piece.
  virtual void end_stream() = 0;
};

// Answers requests; one for all threads of a server.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called on the exchange's thread, several at a time on different ones. What it throws is answered with
  // 500.
  virtual void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;
  // A request that HTTP itself forbids (too large, not HTTP): the body of its answer.
  virtual HttpResponse refuse(unsigned status, const std::string& sentence) = 0;
};

}  // namespace tpsim::launch
