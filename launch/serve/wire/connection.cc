#include "launch/serve/wire/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <utility>

namespace tpsim::launch {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// Requests that a client sends ahead of its answers; more stay in the kernel.
constexpr std::size_t kMostAhead = 64 << 10;
// Buffers of sockets to send from: what a client that does not read may hold of the kernel's memory.
constexpr int kSendBuffer = 128 << 10;
constexpr std::size_t kKeptCapacity = 4 << 10;  // bytes of a buffer that is empty
constexpr std::chrono::seconds kLinger{2};

void forget(std::string& buffer) {
  if (buffer.capacity() > kKeptCapacity) {
    std::string().swap(buffer);
  } else {
    buffer.clear();
  }
}

std::string text(boost::beast::string_view view) { return {view.data(), view.size()}; }

}  // namespace

RequestReader::State RequestReader::read(std::string& pending) {
  if (!parser_) {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<std::uint32_t>(config_.max_head_bytes));
    parser_->body_limit(config_.max_body_bytes);
    head_seen_ = false;
  }
  boost::system::error_code error;
  const std::size_t used = parser_->put(boost::asio::buffer(pending), error);
  pending.erase(0, used);
  if (error == http::error::body_limit)
    return wrong(413, "the body is longer than --max-body-bytes " + std::to_string(config_.max_body_bytes) +
                          " allows");
  if (error == http::error::header_limit)
    return wrong(431, "the head is longer than the " + std::to_string(config_.max_head_bytes) +
                          " bytes that are accepted");
  if (error && error != http::error::need_more) return wrong(400, "this is not HTTP/1.1: " + error.message());
  if (parser_->is_done()) return State::kDone;
  if (!parser_->is_header_done() || std::exchange(head_seen_, true)) return State::kMore;
  return parser_->get()[http::field::expect] == "100-continue" ? State::kContinue : State::kMore;
}

RequestReader::State RequestReader::wrong(unsigned status, std::string sentence) {
  parser_.reset();
  status_ = status;
  sentence_ = std::move(sentence);
  return State::kWrong;
}

RequestReader::Taken RequestReader::take() {
  auto message = parser_->release();
  parser_.reset();
  Taken taken;
  HttpRequest& request = taken.request;
  request.method = text(message.method_string());
  request.path = text(message.target());
  if (const std::size_t mark = request.path.find('?'); mark != std::string::npos) {
    request.query = request.path.substr(mark + 1);
    request.path.resize(mark);
  }
  request.authorization = text(message[http::field::authorization]);
  request.content_type = text(message[http::field::content_type]);
  request.accept = text(message[http::field::accept]);
  request.routing_key = text(message["x-smg-routing-key"]);
  taken.framing = {.keep_alive = message.keep_alive(),
                   .http_1_0 = message.version() < 11,
                   .head_only = message.method() == http::verb::head};
  request.body = boost::beast::buffers_to_string(message.body().data());
  return taken;
}

// A request of the connection until its answer is whole.
class Connection::OpenExchange final : public Exchange {
 public:
  explicit OpenExchange(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

  WireThread& thread() const override { return connection_->worker_; }
  void listen(std::shared_ptr<ExchangeListener> listener) override {
    if (over())
      listener->on_gone();
    else
      connection_->listener_ = std::move(listener);
  }
  void respond(const HttpResponse& response) override {
    if (over()) return;
    AnswerFraming& framing = connection_->framing_;
    if (connection_->draining_) framing.keep_alive = false;
    connection_->ending_ = true;
    connection_->send(response_text(response, framing, connection_->worker_.date()));
  }
  void begin_stream(std::string_view content_type, const HttpHeaders& headers) override {
    if (over()) return;
    AnswerFraming& framing = connection_->framing_;
    if (framing.http_1_0 || connection_->draining_) framing.keep_alive = false;
    connection_->send(stream_head(content_type, headers, framing, connection_->worker_.date()));
  }
  bool ready() const override { return !over() && connection_->out_.empty(); }
  void write(std::string_view piece) override {
    if (over() || piece.empty() || connection_->framing_.head_only) return;
    std::string bytes;
    if (connection_->framing_.http_1_0) {
      bytes = piece;
    } else {
      bytes.reserve(piece.size() + 16);
      append_chunk(piece, bytes);
    }
    connection_->send(std::move(bytes));
  }
  void end_stream() override {
    if (over()) return;
    const std::shared_ptr<Connection> connection = connection_;
    connection->ending_ = true;
    const bool chunked = !connection->framing_.http_1_0 && !connection->framing_.head_only;
    if (chunked)
      connection->send(std::string(kLastChunk));
    else if (connection->out_.empty())
      connection->finish_exchange();
  }

 private:
  bool over() const { return connection_->exchange_ != this; }

  const std::shared_ptr<Connection> connection_;
};

Connection::Connection(asio::ip::tcp::socket socket, Worker& worker)
    : socket_(std::move(socket)), worker_(worker) {
  ++worker_.counters().connections;
}

Connection::~Connection() {
  if (open_) --worker_.counters().connections;
}

void Connection::open() {
  ErrorCode ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  worker_.add(shared_from_this());
}

void Connection::start() {
  open();
  spawn(serve());
}

void Connection::turn_away(const HttpResponse& response) {
  open();
  out_ = response_text(response, {.keep_alive = false}, worker_.date());
  ErrorCode ignored;
  socket_.write_some(asio::buffer(out_), ignored);
  spawn(linger());
}

void Connection::spawn(asio::awaitable<void> work) {
  asio::co_spawn(worker_.io(), std::move(work),
                 [self = shared_from_this()](const std::exception_ptr&) { self->close(); });
}

asio::awaitable<void> Connection::serve() {
  while (open_ && framing_.keep_alive && !draining_) {
    idle_ = received_.empty();
    if (idle_) {
      forget(received_);
      silent_until(worker_.config().idle_timeout);
      co_await take_in();
      idle_ = false;
    }
    const Clock::time_point arrived = Clock::now();
    RequestReader reader(worker_.config());
    if (co_await receive(reader) == RequestReader::State::kDone) {
      dispatch(reader.take(), arrived);
    } else {
      received_.clear();
      begin_exchange({.keep_alive = false})
          ->respond(worker_.handler().refuse(reader.status(), reader.sentence()));
    }
    while (exchange_ != nullptr) co_await take_in();
  }
  co_await linger();
}

// Until a request is whole, or wrong.
asio::awaitable<RequestReader::State> Connection::receive(RequestReader& reader) {
  while (true) {
    const RequestReader::State state = reader.read(received_);
    if (state == RequestReader::State::kDone || state == RequestReader::State::kWrong) co_return state;
    if (state == RequestReader::State::kContinue) say_continue();
    silent_until(worker_.config().receive_timeout);
    co_await take_in();
  }
}

// Waits for bytes of the client and adds them to those that were received, or until finish_exchange(). Throws
// where the connection has ended.
asio::awaitable<void> Connection::take_in() {
  const bool full = exchange_ != nullptr && received_.size() >= kMostAhead;
  ErrorCode error;
  co_await socket_.async_wait(full ? asio::socket_base::wait_error : asio::socket_base::wait_read,
                              asio::redirect_error(asio::use_awaitable, error));
  if (open_ && error == asio::error::operation_aborted) co_return;
  if (full && !error) error = asio::error::connection_reset;
  std::string& scratch = worker_.scratch();
  std::size_t size = 0;
  if (open_ && !error) size = socket_.read_some(asio::buffer(scratch), error);
  if (error == asio::error::would_block || error == asio::error::interrupted) co_return;
  if (!open_ || error) throw boost::system::system_error(error);
  received_.append(scratch, 0, size);
}

asio::awaitable<void> Connection::linger() {
  idle_ = false;
  forget(received_);
  forget(out_);
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  silent_until(kLinger);
  while (true) co_await socket_.async_read_some(asio::buffer(worker_.scratch()), asio::use_awaitable);
}

void Connection::say_continue() {
  // Nothing else is being sent while a request is received.
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  ErrorCode error;
  socket_.write_some(asio::buffer(kContinue.data(), kContinue.size()), error);
  if (error && error != asio::error::would_block) close();
}

std::shared_ptr<Connection::OpenExchange> Connection::begin_exchange(const AnswerFraming& framing) {
  framing_ = framing;
  ending_ = false;
  ++worker_.counters().exchanges;
  const auto exchange = std::make_shared<OpenExchange>(shared_from_this());
  exchange_ = exchange.get();
  return exchange;
}

void Connection::dispatch(RequestReader::Taken taken, Clock::time_point arrived) {
  taken.request.arrived = arrived;
  const std::shared_ptr<OpenExchange> exchange = begin_exchange(taken.framing);
  deadline_ = Clock::time_point::max();
  try {
    worker_.handler().handle(std::move(taken.request), exchange);
  } catch (const std::exception& error) {
    exchange->respond(worker_.handler().refuse(500, std::string("Internal server error: ") + error.what()));
  }
}

void Connection::send(std::string bytes) {
  if (!out_.empty()) {  // flush() is on its way, with a client that takes its time
    out_ += bytes;
    return;
  }
  out_ = std::move(bytes);
  sent_ = 0;
  flush();
}

void Connection::flush() {
  while (sent_ < out_.size()) {
    ErrorCode error;
    sent_ += socket_.write_some(asio::buffer(out_.data() + sent_, out_.size() - sent_), error);
    if (error == asio::error::would_block || error == asio::error::interrupted) {
      silent_until(worker_.config().send_timeout);
      socket_.async_wait(asio::socket_base::wait_write,
                         [self = shared_from_this()](ErrorCode failed) { self->on_writable(failed); });
      return;
    }
    if (error) {
      // Not from within: the writer is in the middle of something.
      sent_ = out_.size();
      worker_.post([self = shared_from_this()] { self->close(); });
      return;
    }
  }
  forget(out_);
  deadline_ = Clock::time_point::max();
  if (ending_) finish_exchange();
}

void Connection::on_writable(ErrorCode error) {
  if (!open_ || out_.empty()) return;
  if (error) {
    close();
    return;
  }
  flush();
  if (exchange_ != nullptr && out_.empty() && listener_) {
    const std::shared_ptr<ExchangeListener> listener = listener_;
    listener->on_ready();
  }
}

void Connection::finish_exchange() {
  exchange_ = nullptr;
  --worker_.counters().exchanges;
  listener_.reset();
  ending_ = false;
  ErrorCode ignored;
  socket_.cancel(ignored);  // serve() goes on
}

void Connection::sweep(Clock::time_point now) {
  if (now >= deadline_) close();
}

void Connection::drain() {
  draining_ = true;
  if (idle_) close();
}

void Connection::close() {
  if (!open_) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  const bool answering = std::exchange(exchange_, nullptr) != nullptr;
  open_ = false;
  // Before the client can see that it is over.
  --worker_.counters().connections;
  if (answering) --worker_.counters().exchanges;
  ErrorCode ignored;
  socket_.close(ignored);
  worker_.remove(self);
  if (!answering) return;
  if (const std::shared_ptr<ExchangeListener> listener = std::move(listener_)) listener->on_gone();
}

}  // namespace tpsim::launch
