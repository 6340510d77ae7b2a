#include "launch/serve/wire/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>
#include <vector>

#include "launch/serve/wire/connection.h"
#include "launch/serve/wire/worker.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Connections beyond the limit that are told so at the same time; more are closed without a word.
constexpr std::size_t kMostTurnedAway = 256;
// Where the process has no file descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

tcp::endpoint endpoint_of(const WireConfig& config) {
  boost::system::error_code error;
  const std::string host = config.host == "localhost" ? "127.0.0.1" : config.host;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) throw_user_error("--host {}: must be an address such as 127.0.0.1, ::1 or 0.0.0.0", config.host);
  return {address, config.port};
}

}  // namespace

struct HttpServer::Implementation {
  Implementation(const WireConfig& wire_config, HttpHandler& http_handler)
      : config(wire_config), handler(http_handler) {
    for (std::size_t i = 0; i < std::max<std::size_t>(config.threads, 1); ++i)
      workers.push_back(std::make_unique<Worker>(i, config, handler, counters));
    acceptor = std::make_unique<tcp::acceptor>(workers.front()->io());
    pause = std::make_unique<asio::steady_timer>(workers.front()->io());
    open();
  }

  void open() {
    const tcp::endpoint endpoint = endpoint_of(config);
    boost::system::error_code error;
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (error)
      throw_user_error("--port {}: cannot be listened on at --host {}: {}", config.port, config.host,
                       error.message());
    port = acceptor->local_endpoint().port();
  }

  void accept() {
    Worker& worker = *workers[next++ % workers.size()];
    acceptor->async_accept(worker.io(), [this, &worker](boost::system::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !acceptor->is_open()) return;
      if (error) {
        pause->expires_after(kAcceptPause);
        pause->async_wait([this](boost::system::error_code cancelled) {
          if (!cancelled && acceptor->is_open()) accept();
        });
        return;
      }
      // Counted here, so that a burst does not pass the limit before its connections are known to their
      // threads.
      const std::size_t open = counters.connections;
      auto connection = std::make_shared<Connection>(std::move(socket), worker);
      if (open < config.max_connections) {
        worker.post([connection] { connection->start(); });
      } else if (open < config.max_connections + kMostTurnedAway) {
        worker.post([this, connection] {
          connection->turn_away(
              handler.refuse(503, "as many connections as --max-connections allows are open"));
        });
      }
      accept();
    });
  }

  WireConfig config;
  HttpHandler& handler;
  WireCounters counters;
  std::vector<std::unique_ptr<Worker>> workers;
  std::unique_ptr<tcp::acceptor> acceptor;
  std::unique_ptr<asio::steady_timer> pause;
  std::uint16_t port = 0;
  std::size_t next = 0;
};

HttpServer::HttpServer(const WireConfig& config, HttpHandler& handler)
    : implementation_(std::make_unique<Implementation>(config, handler)) {}

HttpServer::~HttpServer() { stop(); }

std::uint16_t HttpServer::port() const { return implementation_->port; }
std::size_t HttpServer::threads() const { return implementation_->workers.size(); }
std::size_t HttpServer::connections() const { return implementation_->counters.connections; }
std::size_t HttpServer::exchanges() const { return implementation_->counters.exchanges; }

void HttpServer::start() {
  implementation_->accept();
  for (const auto& worker : implementation_->workers) worker->start();
}

void HttpServer::drain() {
  Implementation& all = *implementation_;
  all.workers.front()->post([&all] {
    boost::system::error_code ignored;
    all.acceptor->close(ignored);
    all.pause->cancel();
  });
  for (const auto& worker : all.workers) worker->drain();
}

void HttpServer::stop() {
  Implementation& all = *implementation_;
  all.workers.front()->post([&all] {
    boost::system::error_code ignored;
    all.acceptor->close(ignored);
    all.pause->cancel();
  });
  for (const auto& worker : all.workers) worker->stop();
}

}  // namespace tpsim::launch
