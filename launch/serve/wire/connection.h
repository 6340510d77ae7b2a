// One client's connection: requests one after another, each answered before the next is looked at.
//
// States. Idle: between requests; receiving: a request has begun; answering: an exchange is open; lingering:
// the last answer is out and what the client still sends is read and thrown away, for a moment, so that
// closing does not take the answer from it (a socket closed with unread bytes resets the connection).
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "launch/serve/wire/exchange.h"
#include "launch/serve/wire/request_reader.h"
#include "launch/serve/wire/response_text.h"
#include "launch/serve/wire/worker.h"

namespace tpsim::launch {

class Connection final : public WorkerConnection, public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;

  // `socket` runs on `worker`, whose thread is the only one that comes here.
  Connection(boost::asio::ip::tcp::socket socket, Worker& worker);
  ~Connection() override;
  void start();
  // Answers with `response` whatever may come, and closes.
  void turn_away(const HttpResponse& response);
  void sweep(Clock::time_point now) override;
  void drain() override;
  void close() override;

 private:
  enum class State : std::uint8_t { kIdle, kReceiving, kAnswering, kLingering, kClosed };
  class OpenExchange;

  void wait_readable();
  void on_readable();
  void pump();
  bool parse();
  void say_continue();
  std::shared_ptr<OpenExchange> begin_exchange(const AnswerFraming& framing);
  void dispatch(RequestReader::Taken taken);
  void refuse(unsigned status, const std::string& sentence);
  void send(std::string bytes);
  void flush();
  void on_writable(ErrorCode error);
  void finish_exchange();
  void linger();
  void silent_until(std::chrono::seconds timeout) { deadline_ = Clock::now() + timeout; }

  boost::asio::ip::tcp::socket socket_;
  Worker& worker_;
  State state_ = State::kIdle;
  bool reading_ = false;  // a wait for bytes is under way
  bool pumping_ = false;
  bool draining_ = false;
  bool ending_ = false;  // the exchange is over when out_ is out
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point arrived_;
  const OpenExchange* exchange_ = nullptr;  // while it is open; one that is over asks for nothing any more
  AnswerFraming framing_;
  std::shared_ptr<ExchangeListener> listener_;
  std::unique_ptr<RequestReader> reader_;  // while a request is received
  std::string pending_;                    // received, not parsed
  std::string out_;                        // being sent
  std::size_t sent_ = 0;
};

}  // namespace tpsim::launch
