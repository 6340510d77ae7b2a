// HTTP/1.1 on Boost.Asio: a listener, and threads that each own their connections.
//
// A connection costs a socket and about a kilobyte while nothing happens on it. What a client may cost is
// limited: heads, bodies, connections, and the time in which it neither sends nor takes a byte.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "launch/serve/wire/exchange.h"

namespace tpsim::launch {

struct WireConfig {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: any that is free
  std::size_t threads = 1;
  std::size_t max_connections = 16384;
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t max_head_bytes = std::size_t{64} << 10;
  std::chrono::seconds idle_timeout{75};     // between two requests
  std::chrono::seconds receive_timeout{60};  // for the next byte of a request
  std::chrono::seconds send_timeout{120};    // for the next byte of an answer to be taken
};

class HttpServer {
 public:
  // Binds and listens. Throws UserError naming --host and --port. `handler` must outlive the server.
  HttpServer(const WireConfig& config, HttpHandler& handler);
  // As stop().
  ~HttpServer();

  std::uint16_t port() const;
  std::size_t threads() const;
  // Begins to accept. Throws nothing.
  void start();
  // Closes the listener and idle connections; the others end with their answers. Any thread.
  void drain();
  // Connections that are open, and exchanges that are not answered yet. Any thread.
  std::size_t connections() const;
  std::size_t exchanges() const;
  // Closes everything and ends the threads; listeners hear on_gone(). Not from a thread of the server.
  void stop();

  struct Implementation;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tpsim::launch
