// One client's connection: requests one after another, each answered before the next is looked at.
//
// After the last answer the connection lingers: what the client still sends is read and thrown away for a
// moment, so that closing does not take the answer from it (a socket closed with unread bytes resets the
// connection).
#pragma once

// clang-format off
#include <utility>  // first: awaitable.hpp of Boost 1.74 names std::exchange without it
// clang-format on
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/dynamic_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "launch/serve/wire/exchange.h"
#include "launch/serve/wire/http_message.h"
#include "launch/serve/wire/wire_config.h"
#include "launch/serve/wire/worker.h"

namespace tpsim::launch {

// Bytes to requests: HTTP/1.1 as Beast reads it, within limits.
class RequestReader {
 public:
  enum class State {
    kMore,      // needs more bytes
    kContinue,  // as kMore, and its client waits to be told to go on; said once a request
    kDone,      // take() it
    kWrong      // status() and sentence() say what is; nothing more can be read
  };

  // Within the limits of `config`, which must outlive it.
  explicit RequestReader(const WireConfig& config) : config_(config) {}

  // Reads on in `pending`, and takes away what it has used.
  State read(std::string& pending);

  struct Taken {
    HttpRequest request;  // `arrived` is the caller's to fill in
    AnswerFraming framing;
  };
  // REQUIRES: read() said kDone. The next read() begins another request.
  Taken take();

  unsigned status() const { return status_; }
  const std::string& sentence() const { return sentence_; }

 private:
  State wrong(unsigned status, std::string sentence);

  const WireConfig& config_;
  // Its body grows with what comes, not with what was announced.
  std::optional<boost::beast::http::request_parser<boost::beast::http::dynamic_body>> parser_;
  bool head_seen_ = false;
  unsigned status_ = 0;
  std::string sentence_;
};

class Connection final : public OpenConnection, public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;

  // `socket` runs on `worker`, whose thread is the only one that comes here.
  Connection(boost::asio::ip::tcp::socket socket, Worker& worker);
  ~Connection() override;
  void start();
  // Answers with `response` whatever may come, and closes.
  void turn_away(const HttpResponse& response);
  // Closes the connection if it was silent for too long.
  void sweep(Clock::time_point now) override;
  // Ends after the present exchange; at once where there is none.
  void drain() override;
  void close() override;

 private:
  class OpenExchange;

  void open();
  // Carries out `work`, and closes when it has ended, or the client's side has.
  void spawn(boost::asio::awaitable<void> work);
  boost::asio::awaitable<void> serve();
  boost::asio::awaitable<RequestReader::State> receive(RequestReader& reader);
  boost::asio::awaitable<void> take_in();
  boost::asio::awaitable<void> linger();
  void say_continue();
  std::shared_ptr<OpenExchange> begin_exchange(const AnswerFraming& framing);
  void dispatch(RequestReader::Taken taken, Clock::time_point arrived);
  void send(std::string bytes);
  void flush();
  void on_writable(ErrorCode error);
  void finish_exchange();
  void silent_until(std::chrono::seconds timeout) { deadline_ = Clock::now() + timeout; }

  boost::asio::ip::tcp::socket socket_;
  Worker& worker_;
  bool open_ = true;
  bool idle_ = true;  // between requests
  bool draining_ = false;
  bool ending_ = false;  // the exchange is over when out_ is out
  Clock::time_point deadline_ = Clock::time_point::max();
  const OpenExchange* exchange_ = nullptr;  // while it is open; one that is over asks for nothing any more
  AnswerFraming framing_;
  std::shared_ptr<ExchangeListener> listener_;
  std::string received_;  // not parsed yet
  std::string out_;       // being sent
  std::size_t sent_ = 0;
};

}  // namespace tpsim::launch
