#include "launch/serve/wire/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "launch/serve/wire/connection.h"
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

HttpServer::HttpServer(const WireConfig& config, HttpHandler& handler) : config_(config), handler_(handler) {
  for (std::size_t i = 0; i < std::max<std::size_t>(config_.threads, 1); ++i)
    workers_.push_back(std::make_unique<Worker>(i, config_, handler_, counters_));
  acceptor_.emplace(workers_.front()->io());
  listen();
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::listen() {
  const tcp::endpoint endpoint = endpoint_of(config_);
  boost::system::error_code error;
  acceptor_->open(endpoint.protocol(), error);
  if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_->bind(endpoint, error);
  if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
  if (error)
    throw_user_error("--port {}: cannot be listened on at --host {}: {}", config_.port, config_.host,
                     error.message());
  port_ = acceptor_->local_endpoint().port();
}

std::string HttpServer::url() const {
  const bool six = config_.host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", six ? fmt::format("[{}]", config_.host) : config_.host, port_);
}

void HttpServer::start() {
  asio::co_spawn(workers_.front()->io(), accept(), asio::detached);
  for (const auto& worker : workers_) worker->start();
}

asio::awaitable<void> HttpServer::accept() {
  asio::steady_timer pause(workers_.front()->io());
  while (acceptor_->is_open()) {
    Worker& worker = *workers_[next_++ % workers_.size()];
    boost::system::error_code error;
    tcp::socket socket =
        co_await acceptor_->async_accept(worker.io(), asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      on_accepted(worker, std::move(socket));
    } else if (error != asio::error::operation_aborted) {
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(asio::use_awaitable);
    }
  }
}

void HttpServer::on_accepted(Worker& worker, tcp::socket socket) {
  // Counted here, so that a burst does not pass the limit before its connections are known to their threads.
  const std::size_t open = counters_.connections;
  auto connection = std::make_shared<Connection>(std::move(socket), worker);
  if (open < config_.max_connections) {
    worker.post([connection] { connection->start(); });
  } else if (open < config_.max_connections + kMostTurnedAway) {
    worker.post([this, connection] {
      connection->turn_away(handler_.refuse(503, "as many connections as --max-connections allows are open"));
    });
  }
}

void HttpServer::close_door() {
  workers_.front()->post([this] {
    boost::system::error_code ignored;
    acceptor_->close(ignored);
  });
}

void HttpServer::drain() {
  close_door();
  for (const auto& worker : workers_) worker->drain();
}

void HttpServer::stop() {
  close_door();
  for (const auto& worker : workers_) worker->stop();
}

}  // namespace tpsim::launch
