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
// Buffers of sockets to send from: what a reader who does not read may hold of the kernel's memory.
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

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, std::uint64_t generation)
      : connection_(std::move(connection)), generation_(generation) {}

  WireThread& thread() const override { return connection_->worker(); }
  void listen(std::shared_ptr<ExchangeListener> listener) override {
    connection_->listen(generation_, std::move(listener));
  }
  void respond(const HttpResponse& response) override { connection_->respond(generation_, response); }
  void begin_stream(std::string_view content_type, const HttpHeaders& headers) override {
    connection_->begin_stream(generation_, content_type, headers);
  }
  bool ready() const override { return connection_->ready(generation_); }
  void write(std::string_view piece) override { connection_->write(generation_, piece); }
  void end_stream() override { connection_->end_stream(generation_); }

 private:
  const std::shared_ptr<Connection> connection_;
  const std::uint64_t generation_;
};

}  // namespace

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
      self->gone();
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
      gone();
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
  if (error && error != asio::error::would_block) gone();
}

void Connection::dispatch(RequestReader::Taken taken) {
  HttpRequest& request = taken.request;
  request.arrived = arrived_;
  framing_ = taken.framing;
  if (draining_) framing_.keep_alive = false;
  if (pending_.empty()) forget(pending_);

  state_ = State::kAnswering;
  streaming_ = ending_ = false;
  deadline_ = Clock::time_point::max();
  ++worker_.counters().exchanges;
  const std::uint64_t generation = ++generation_;
  const auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), generation);
  try {
    worker_.handler().handle(std::move(request), exchange);
  } catch (const std::exception& error) {
    respond(generation, worker_.handler().refuse(500, std::string("Internal server error: ") + error.what()));
  }
  // What came behind it counts from when it is looked at.
  arrived_ = Clock::now();
}

void Connection::refuse(unsigned status, const std::string& sentence) {
  const std::string said = sentence;  // the reader's own, perhaps
  reader_.reset();
  pending_.clear();
  framing_ = {.keep_alive = false};
  state_ = State::kAnswering;
  streaming_ = ending_ = false;
  ++worker_.counters().exchanges;
  respond(++generation_, worker_.handler().refuse(status, said));
}

void Connection::listen(std::uint64_t generation, std::shared_ptr<ExchangeListener> listener) {
  if (generation == generation_) {
    listener_ = std::move(listener);
  } else {
    listener->on_gone();
  }
}

void Connection::respond(std::uint64_t generation, const HttpResponse& response) {
  if (generation != generation_) return;
  if (draining_) framing_.keep_alive = false;
  ending_ = true;
  send(response_text(response, framing_, worker_.date()));
}

void Connection::begin_stream(std::uint64_t generation, std::string_view content_type,
                              const HttpHeaders& headers) {
  if (generation != generation_) return;
  if (framing_.http_1_0 || draining_) framing_.keep_alive = false;
  streaming_ = true;
  send(stream_head(content_type, headers, framing_, worker_.date()));
}

void Connection::write(std::uint64_t generation, std::string_view piece) {
  if (generation != generation_ || piece.empty() || framing_.head_only) return;
  std::string bytes;
  if (framing_.http_1_0) {
    bytes = piece;
  } else {
    bytes.reserve(piece.size() + 16);
    append_chunk(piece, bytes);
  }
  send(std::move(bytes));
}

void Connection::end_stream(std::uint64_t generation) {
  if (generation != generation_) return;
  ending_ = true;
  const bool chunked = !framing_.http_1_0 && !framing_.head_only;
  if (!out_.empty()) {
    if (chunked) out_ += kLastChunk;
  } else if (chunked) {
    send(std::string(kLastChunk));
  } else {
    finish_exchange();
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
      // Not from within: whoever writes is in the middle of something.
      sent_ = out_.size();
      worker_.post([self = shared_from_this()] { self->gone(); });
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
    gone();
    return;
  }
  flush();
  if (state_ == State::kAnswering && out_.empty() && listener_) {
    const std::shared_ptr<ExchangeListener> listener = listener_;
    listener->on_ready();
  }
}

void Connection::finish_exchange() {
  ++generation_;
  --worker_.counters().exchanges;
  listener_.reset();
  ending_ = streaming_ = false;
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
  if (now >= deadline_) gone();
}

void Connection::drain() {
  draining_ = true;
  if (state_ == State::kIdle) close();
}

void Connection::close() { gone(); }

void Connection::gone() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  const bool answering = state_ == State::kAnswering;
  state_ = State::kClosed;
  ++generation_;
  // Before the client can see that it is over.
  --worker_.counters().connections;
  if (answering) --worker_.counters().exchanges;
  ErrorCode ignored;
  socket_.close(ignored);
  worker_.remove(*this);
  if (!answering) return;
  if (const std::shared_ptr<ExchangeListener> listener = std::move(listener_)) listener->on_gone();
}

}  // namespace tpsim::launch
