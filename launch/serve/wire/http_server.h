// HTTP/1.1 on Boost.Asio: a listener, and threads that each own their connections.
//
// A connection costs a socket and about a kilobyte while nothing happens on it. What a client may cost is
// limited: heads, bodies, connections, and the time in which it neither sends nor takes a byte.
#pragma once

// clang-format off
#include <utility>  // first: awaitable.hpp of Boost 1.74 names std::exchange without it
// clang-format on
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/serve/wire/exchange.h"
#include "launch/serve/wire/wire_config.h"
#include "launch/serve/wire/worker.h"

namespace tpsim::launch {

class HttpServer {
 public:
  // Binds and listens. Throws UserError naming --host and --port. `handler` must outlive the server.
  HttpServer(const WireConfig& config, HttpHandler& handler);
  // As stop().
  ~HttpServer();

  std::uint16_t port() const { return port_; }
  // "http://127.0.0.1:30000".
  std::string url() const;
  std::size_t threads() const { return workers_.size(); }
  // Begins to accept. Throws nothing.
  void start();
  // Closes the listener and idle connections; the others end with their answers. Any thread.
  void drain();
  // Connections that are open, and exchanges that are not answered yet. Any thread.
  std::size_t connections() const { return counters_.connections; }
  std::size_t exchanges() const { return counters_.exchanges; }
  // Closes everything and ends the threads; listeners hear on_gone(). Not from a thread of the server.
  void stop();

 private:
  void listen();
  boost::asio::awaitable<void> accept();
  void on_accepted(Worker& worker, boost::asio::ip::tcp::socket socket);
  void close_door();

  const WireConfig config_;
  HttpHandler& handler_;
  WireCounters counters_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::optional<boost::asio::ip::tcp::acceptor> acceptor_;  // on the first worker's thread
  std::uint16_t port_ = 0;
  std::size_t next_ = 0;  // worker
};

}  // namespace tpsim::launch
