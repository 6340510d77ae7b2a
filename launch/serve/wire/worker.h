// A thread of the server, with the connections that live on it.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "launch/serve/wire/exchange.h"
#include "launch/serve/wire/wire_config.h"

namespace tpsim::launch {

// A connection as the thread that it lives on sees it. All on that thread.
class OpenConnection {
 public:
  virtual ~OpenConnection() = default;
  virtual void close() = 0;
  virtual void drain() = 0;
  virtual void sweep(std::chrono::steady_clock::time_point now) = 0;
};

// Of all threads together.
struct WireCounters {
  std::atomic<std::size_t> connections = 0;
  std::atomic<std::size_t> exchanges = 0;
};

class Worker final : public WireThread {
 public:
  Worker(std::size_t index, const WireConfig& config, HttpHandler& handler, WireCounters& counters);
  ~Worker() override;

  void start();
  // Closes the connections and ends the thread. From another one.
  void stop();
  void drain();
  void post(std::function<void()> work) override;
  void post_at(std::chrono::steady_clock::time_point due, std::function<void()> work) override;
  std::size_t index() const override { return index_; }
  boost::asio::io_context& io() { return io_; }

  // On the worker's thread.
  void add(std::shared_ptr<OpenConnection> connection) { connections_.insert(std::move(connection)); }
  void remove(const std::shared_ptr<OpenConnection>& connection) { connections_.erase(connection); }
  const WireConfig& config() const { return config_; }
  HttpHandler& handler() { return handler_; }
  WireCounters& counters() { return counters_; }
  std::string& scratch() { return scratch_; }
  // Of the present second.
  const std::string& date() const { return date_; }

 private:
  // All of them, which may go while they are told something.
  std::vector<std::shared_ptr<OpenConnection>> open() const {
    return {connections_.begin(), connections_.end()};
  }
  void sweep();
  void run_due();

  const std::size_t index_;
  const WireConfig& config_;
  HttpHandler& handler_;
  WireCounters& counters_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_, due_timer_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due_;
  std::unordered_set<std::shared_ptr<OpenConnection>> connections_;
  std::string scratch_;  // what is being received
  std::string date_;
  std::thread thread_;
};

}  // namespace tpsim::launch
