#include "launch/serve/wire/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <exception>
#include <utility>

namespace tpsim::launch {
namespace {

namespace asio = boost::asio;

// Requests that a client sends ahead of its answers; more stay in the kernel.
constexpr std::size_t kMostAhead = 64 << 10;
// Read from one connection before others have their turn.
constexpr std::size_t kTurnBytes = 256 << 10;
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

}  // namespace

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
  if (state_ != State::kClosed) --worker_.counters().connections;
}

void Connection::start() {
  ErrorCode ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  worker_.add(shared_from_this());
  silent_until(worker_.config().idle_timeout);
  wait_readable();
}

void Connection::turn_away(const HttpResponse& response) {
  start();
  framing_ = {.keep_alive = false};
  out_ = response_text(response, framing_, worker_.date());
  ErrorCode ignored;
  socket_.write_some(asio::buffer(out_), ignored);
  linger();
}

void Connection::wait_readable() {
  if (reading_ || state_ == State::kClosed) return;
  reading_ = true;
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](ErrorCode error) {
    self->reading_ = false;
    if (self->state_ == State::kClosed) return;
    if (error) {
      self->close();
    } else {
      self->on_readable();
    }
  });
}

void Connection::on_readable() {
  if (state_ == State::kIdle) arrived_ = Clock::now();
  std::string& scratch = worker_.scratch();
  std::size_t taken = 0;
  while (taken < kTurnBytes) {
    if (state_ == State::kAnswering && pending_.size() >= kMostAhead) return;  // finish_exchange() goes on
    ErrorCode error;
    const std::size_t size = socket_.read_some(asio::buffer(scratch), error);
    if (error == asio::error::would_block || error == asio::error::interrupted) break;
    if (error || size == 0) {
      close();
      return;
    }
    taken += size;
    if (state_ == State::kLingering) continue;
    pending_.append(scratch.data(), size);
    if (state_ == State::kAnswering) continue;
    pump();
    if (state_ == State::kClosed) return;
  }
  wait_readable();
}

void Connection::pump() {
  if (pumping_) return;
  pumping_ = true;
  while ((state_ == State::kIdle || state_ == State::kReceiving) && !pending_.empty() && parse()) {
  }
  pumping_ = false;
}

// Returns whether what is left may be another request.
bool Connection::parse() {
  if (reader_ == nullptr) {
    state_ = State::kReceiving;
    const WireConfig& config = worker_.config();
    reader_ = std::make_unique<RequestReader>(
        ReadLimits{.max_head_bytes = config.max_head_bytes, .max_body_bytes = config.max_body_bytes});
  }
  silent_until(worker_.config().receive_timeout);
  switch (reader_->read(pending_)) {
    case RequestReader::State::kMore:
      return false;
    case RequestReader::State::kContinue:
      say_continue();
      return false;
    case RequestReader::State::kWrong:
      refuse(reader_->status(), reader_->sentence());
      return false;
    case RequestReader::State::kDone:
      break;
  }
  RequestReader::Taken taken = reader_->take();
  reader_.reset();
  dispatch(std::move(taken));
  return true;
}

void Connection::say_continue() {
  // Nothing else is being sent while a request is received.
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  ErrorCode error;
  socket_.write_some(asio::buffer(kContinue.data(), kContinue.size()), error);
  if (error && error != asio::error::would_block) close();
}

std::shared_ptr<Connection::OpenExchange> Connection::begin_exchange(const AnswerFraming& framing) {
  state_ = State::kAnswering;
  framing_ = framing;
  ending_ = false;
  ++worker_.counters().exchanges;
  const auto exchange = std::make_shared<OpenExchange>(shared_from_this());
  exchange_ = exchange.get();
  return exchange;
}

void Connection::dispatch(RequestReader::Taken taken) {
  HttpRequest& request = taken.request;
  request.arrived = arrived_;
  if (pending_.empty()) forget(pending_);

  const std::shared_ptr<OpenExchange> exchange = begin_exchange(taken.framing);
  deadline_ = Clock::time_point::max();
  try {
    worker_.handler().handle(std::move(request), exchange);
  } catch (const std::exception& error) {
    exchange->respond(worker_.handler().refuse(500, std::string("Internal server error: ") + error.what()));
  }
  // What came after it counts from when it is looked at.
  arrived_ = Clock::now();
}

void Connection::refuse(unsigned status, const std::string& sentence) {
  const std::string said = sentence;  // the reader's own, perhaps
  reader_.reset();
  pending_.clear();
  begin_exchange({.keep_alive = false})->respond(worker_.handler().refuse(status, said));
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
  if (state_ == State::kClosed || out_.empty()) return;
  if (error) {
    close();
    return;
  }
  flush();
  if (state_ == State::kAnswering && out_.empty() && listener_) {
    const std::shared_ptr<ExchangeListener> listener = listener_;
    listener->on_ready();
  }
}

void Connection::finish_exchange() {
  exchange_ = nullptr;
  --worker_.counters().exchanges;
  listener_.reset();
  ending_ = false;
  state_ = State::kIdle;
  if (!framing_.keep_alive || draining_) {
    linger();
    return;
  }
  arrived_ = Clock::now();
  silent_until(worker_.config().idle_timeout);
  pump();
  wait_readable();
}

void Connection::linger() {
  state_ = State::kLingering;
  forget(pending_);
  forget(out_);
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  silent_until(kLinger);
  wait_readable();
}

void Connection::sweep(Clock::time_point now) {
  if (now >= deadline_) close();
}

void Connection::drain() {
  draining_ = true;
  if (state_ == State::kIdle) close();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  const bool answering = state_ == State::kAnswering;
  state_ = State::kClosed;
  exchange_ = nullptr;
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
