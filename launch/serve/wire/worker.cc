#include "launch/serve/wire/worker.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "launch/serve/wire/http_message.h"

namespace tpsim::launch {
namespace {

constexpr std::size_t kScratchBytes = 64 << 10;
constexpr std::chrono::seconds kSweepEvery{1};

}  // namespace

Worker::Worker(std::size_t index, const WireConfig& config, HttpHandler& handler, WireCounters& counters)
    : index_(index),
      config_(config),
      handler_(handler),
      counters_(counters),
      work_(io_.get_executor()),
      timer_(io_),
      due_timer_(io_),
      scratch_(kScratchBytes, '\0'),
      date_(http_date()) {}

Worker::~Worker() { stop(); }

void Worker::start() {
  sweep();
  thread_ = std::thread([this] { io_.run(); });
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  post([this] {
    timer_.cancel();
    due_timer_.cancel();
    due_.clear();
    for (const auto& connection : open()) connection->close();
    io_.stop();
  });
  thread_.join();
}

void Worker::drain() {
  post([this] {
    for (const auto& connection : open()) connection->drain();
  });
}

void Worker::post(std::function<void()> work) { boost::asio::post(io_, std::move(work)); }

void Worker::post_at(std::chrono::steady_clock::time_point due, std::function<void()> work) {
  post([this, due, work = std::move(work)]() mutable {
    const bool first = due_.empty() || due < due_.begin()->first;
    due_.emplace(due, std::move(work));
    if (first) run_due();
  });
}

// Runs what is due, and sets the timer to what is next.
void Worker::run_due() {
  while (!due_.empty() && due_.begin()->first <= std::chrono::steady_clock::now()) {
    const std::function<void()> work = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    work();
  }
  if (due_.empty()) return;
  due_timer_.expires_at(due_.begin()->first);
  due_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) run_due();
  });
}

void Worker::sweep() {
  date_ = http_date();
  const auto now = std::chrono::steady_clock::now();
  for (const auto& connection : open()) connection->sweep(now);
  timer_.expires_after(kSweepEvery);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) sweep();
  });
}

}  // namespace tpsim::launch
